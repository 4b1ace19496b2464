#include "lorry/profile/sampling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
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

/// Takes samples of calls, after a warm-up that says how many calls make one.
class Sampler {
 public:
  Sampler(const Calls& calls, const Sampling& sampling, const Instruments& instruments)
      : calls_(calls), instruments_(instruments) {
    if (sampling.warmup_s <= 0) return;
    const double one = warm_up(calls, sampling.warmup_s, instruments);
    const double wanted = one > 0 ? sampling.sample_s / one : static_cast<double>(sampling.max_calls_per_sample);
    // Compared before the conversion, because the quotient may be larger than any integer.
    per_sample_ = wanted >= static_cast<double>(sampling.max_calls_per_sample)
                      ? sampling.max_calls_per_sample
                      : std::max<int64_t>(1, static_cast<int64_t>(wanted));
  }

  /// Takes a sample and returns it: microseconds per call.
  double take() {
    const double scale = 1e6 / static_cast<double>(per_sample_);
    if (calls_.set_up) {
      calls_.set_up(per_sample_);
      instruments_.synchronize();
    }
    const double start = instruments_.seconds();
    calls_.run(per_sample_);
    submissions_.push_back(scale * (instruments_.seconds() - start));
    instruments_.synchronize();
    samples_.push_back(scale * (instruments_.seconds() - start));
    const double sample = samples_.back();
    if (calls_.tear_down) calls_.tear_down();
    return sample;
  }

  int64_t samples() const { return static_cast<int64_t>(samples_.size()); }

  BenchmarkResult result() const {
    std::vector<double> samples = samples_, submissions = submissions_;
    std::ranges::sort(samples);
    std::ranges::sort(submissions);
    const double median = percentile(samples, 0.5);
    return {.median_us = median,
            .min_us = samples.front(),
            .p90_us = percentile(samples, 0.9),
            .spread = median > 0 ? (percentile(samples, 0.75) - percentile(samples, 0.25)) / median : 0,
            .submit_us = percentile(submissions, 0.5),
            .samples = static_cast<int64_t>(samples.size()),
            .calls_per_sample = per_sample_};
  }

 private:
  const Calls& calls_;
  const Instruments& instruments_;
  int64_t per_sample_ = 1;
  std::vector<double> samples_, submissions_;
};

/// The interval from the value of this rank (from 0) to the one of the same rank from above holds the median of what
/// `count` sorted values were drawn from with this probability: the highest rank for which that is at least 0.95, or
/// rank 0. The number of values below the median is binomial (Conover, Practical Nonparametric Statistics, 3.2).
std::pair<size_t, double> median_interval(size_t count) {
  // log P(exactly k of `count` are below), with P = C(count, k) / 2^count
  const double n = static_cast<double>(count);
  double below = 0, confidence = 1 - 2 * std::exp2(-n);
  size_t rank = 0;
  for (size_t k = 0; 2 * k + 2 < count; ++k) {
    const double at = static_cast<double>(k);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(at + 1) - std::lgamma(n - at + 1) - n * std::log(2.0));
    if (1 - 2 * below < 0.95) break;
    rank = k, confidence = 1 - 2 * below;
  }
  return {rank, std::max(0.0, confidence)};
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BenchmarkResult take_samples(const Calls& calls, const Sampling& sampling, const Instruments& instruments) {
  Sampler sampler(calls, sampling, instruments);
  const double begin = instruments.seconds();
  do {
    sampler.take();
  } while (sampler.samples() < sampling.min_samples || instruments.seconds() - begin < sampling.total_s);
  return sampler.result();
}

PairResult take_pairs(const Calls& first, const Calls& second, const Sampling& sampling,
                      const Instruments& instruments) {
  Sampler a(first, sampling, instruments), b(second, sampling, instruments);
  std::vector<double> ratios, differences;
  const double begin = instruments.seconds();
  do {
    const bool a_first = ratios.size() % 2 == 0;
    double of_a = 0, of_b = 0;
    if (a_first) of_a = a.take();
    of_b = b.take();
    if (!a_first) of_a = a.take();
    // A clock that does not resolve a sample says nothing about the ratio.
    ratios.push_back(of_a > 0 ? of_b / of_a : 1);
    differences.push_back(of_b - of_a);
  } while (a.samples() < sampling.min_samples || instruments.seconds() - begin < sampling.total_s);
  std::ranges::sort(ratios);
  std::ranges::sort(differences);
  const auto [rank, confidence] = median_interval(ratios.size());
  const size_t last = ratios.size() - 1;
  return {.first = a.result(),
          .second = b.result(),
          .ratio = percentile(ratios, 0.5),
          .ratio_low = ratios[rank],
          .ratio_high = ratios[last - rank],
          .difference_us = percentile(differences, 0.5),
          .difference_low_us = differences[rank],
          .difference_high_us = differences[last - rank],
          .confidence = confidence};
}

}  // namespace lorry::profile::detail
