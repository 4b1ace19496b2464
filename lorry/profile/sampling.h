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

/// Two calls measured side by side, in pairs of neighbouring samples, so that what disturbs the machine disturbs both.
struct PairResult {
  BenchmarkResult first, second;
  /// How many times as long the second takes: the median over the pairs of samples. `ratio_low` to `ratio_high` holds
  /// the true median with the probability `confidence`, whatever the distribution of the samples.
  double ratio = 0, ratio_low = 0, ratio_high = 0;
  /// By how many microseconds a call of the second takes longer, in the same way. Negative: it takes less.
  double difference_us = 0, difference_low_us = 0, difference_high_us = 0;
  double confidence = 0;  ///< 0.95 or a little more; with fewer than 6 pairs less, and the interval is all of them

  /// Whether the two differ: 1 lies outside the interval of the ratio.
  bool differ() const { return ratio_low > 1 || ratio_high < 1; }
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

/// Takes samples of both in turn for sampling.total_s together; sampling.min_samples is the number of pairs. Which of
/// the two comes first alternates.
PairResult take_pairs(const Calls& first, const Calls& second, const Sampling& sampling,
                      const Instruments& instruments);

}  // namespace detail
}  // namespace lorry::profile
