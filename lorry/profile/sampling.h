#pragma once

// How benchmark() takes samples. The timed calls, the clock and the device are parameters: tests use a clock of their
// own, and bench/peers measures other libraries in the same way. Uses nothing else of Lorry.

#include <cstdint>
#include <functional>

namespace lorry::profile {

/// Times per call in microseconds. A sample is the time of several calls, divided by their number.
struct BenchmarkResult {
  double median_us = 0, min_us = 0, p90_us = 0;  ///< over all samples
  double spread = 0;                             ///< (75th - 25th percentile) / median
  double submit_us = 0;  ///< median time until the calls had returned; the device may still have been working
  int64_t samples = 0, calls_per_sample = 0;
};

namespace detail {

/// How long to measure; see BenchmarkOptions.
struct Sampling {
  double warmup_s, sample_s, total_s;
  int64_t min_samples;
  int64_t max_calls_per_sample;
};

/// The timed calls.
struct Calls {
  std::function<void(int64_t count)> run;          ///< makes `count` calls
  std::function<void(int64_t count)> set_up = {};  ///< before each run, not timed; may be empty
  std::function<void()> tear_down = {};            ///< after each run, not timed; may be empty
};

/// The clock, and the wait for the device.
struct Instruments {
  std::function<double()> seconds;    ///< since a fixed point in time
  std::function<void()> synchronize;  ///< waits until all work of the calls is done
};

/// The time of std::chrono::steady_clock.
double steady_seconds();

BenchmarkResult take_samples(const Calls& calls, const Sampling& sampling, const Instruments& instruments);

}  // namespace detail
}  // namespace lorry::profile
