#include "lorry/profile/sampling.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace lorry::profile::detail {
namespace {

/// During the warm-up, the host waits for the device after this many calls, because the device's queue is bounded.
constexpr int64_t kCallsBetweenWaits = 64;

double percentile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

/// Makes calls for warmup_s. Returns the seconds per call.
double warm_up(const Calls& calls, double warmup_s, const Instruments& instruments) {
  double in_calls = 0;
  int64_t count = 0;
  const double begin = instruments.seconds();
  do {
    if (calls.set_up) {
      calls.set_up(1);
      instruments.synchronize();
    }
    const double start = instruments.seconds();
    calls.run(1);
    if (++count % kCallsBetweenWaits == 0 || calls.set_up) instruments.synchronize();
    in_calls += instruments.seconds() - start;
    if (calls.tear_down) calls.tear_down();
  } while (instruments.seconds() - begin < warmup_s);
  const double start = instruments.seconds();
  instruments.synchronize();
  in_calls += instruments.seconds() - start;
  return in_calls / static_cast<double>(count);
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BenchmarkResult take_samples(const Calls& calls, const Sampling& sampling, const Instruments& instruments) {
  int64_t per_sample = 1;
  if (sampling.warmup_s > 0) {
    const double one = warm_up(calls, sampling.warmup_s, instruments);
    const double wanted = one > 0 ? sampling.sample_s / one : static_cast<double>(sampling.max_calls_per_sample);
    // Compared before the conversion, because the quotient may be larger than any integer.
    per_sample = wanted >= static_cast<double>(sampling.max_calls_per_sample)
                     ? sampling.max_calls_per_sample
                     : std::max<int64_t>(1, static_cast<int64_t>(wanted));
  }
  std::vector<double> samples, submissions;
  const double begin = instruments.seconds(), scale = 1e6 / static_cast<double>(per_sample);
  do {
    if (calls.set_up) {
      calls.set_up(per_sample);
      instruments.synchronize();
    }
    const double start = instruments.seconds();
    calls.run(per_sample);
    submissions.push_back(scale * (instruments.seconds() - start));
    instruments.synchronize();
    samples.push_back(scale * (instruments.seconds() - start));
    if (calls.tear_down) calls.tear_down();
  } while (static_cast<int64_t>(samples.size()) < sampling.min_samples ||
           instruments.seconds() - begin < sampling.total_s);
  std::ranges::sort(samples);
  std::ranges::sort(submissions);
  const double median = percentile(samples, 0.5);
  return {.median_us = median,
          .min_us = samples.front(),
          .p90_us = percentile(samples, 0.9),
          .spread = median > 0 ? (percentile(samples, 0.75) - percentile(samples, 0.25)) / median : 0,
          .submit_us = percentile(submissions, 0.5),
          .samples = static_cast<int64_t>(samples.size()),
          .calls_per_sample = per_sample};
}

}  // namespace lorry::profile::detail
