#pragma once

// How benchmark() takes samples, apart from what is timed, the clock and the device: tests put a clock of their own
// here, and bench/peers measures other libraries the same way. Nothing of Lorry is needed.

#include <cstdint>
#include <functional>

namespace lorry::profile {

/// Microseconds a call. A sample is several calls; its time is divided among them.
struct BenchmarkResult {
  double median_us = 0, min_us = 0, p90_us = 0;  ///< over the samples
  double spread = 0;                             ///< (75th - 25th percentile) / median
  double submit_us = 0;  ///< median until the calls had returned; the device may have gone on working
  int64_t samples = 0, calls_per_sample = 0;
};

namespace detail {

/// How long to measure; see BenchmarkOptions.
struct Sampling {
  double warmup_s, sample_s, total_s;
  int64_t min_samples;
  int64_t max_calls_per_sample;
};

/// What is timed.
struct Calls {
  std::function<void(int64_t count)> run;          ///< makes so many calls
  std::function<void(int64_t count)> set_up = {};  ///< before each run, not timed; may be empty
  std::function<void()> tear_down = {};            ///< after each run, not timed; may be empty
};

/// What measures.
struct Instruments {
  std::function<double()> seconds;    ///< since some fixed moment
  std::function<void()> synchronize;  ///< returns when what the calls began is done
};

/// Of std::chrono::steady_clock.
double steady_seconds();

BenchmarkResult take_samples(const Calls& calls, const Sampling& sampling, const Instruments& instruments);

}  // namespace detail
}  // namespace lorry::profile
