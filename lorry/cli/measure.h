#pragma once

// Timing of short calls: warm up, choose how many calls make a sample that the clock can resolve, report median, least and
// 90th percentile of a call.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace lorry::cli {

struct Timing {
  double median_us = 0, min_us = 0, p90_us = 0;
};

/// Keeps the compiler from dropping a computation whose result nobody reads.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

struct Effort {
  double warmup_s = 0.2, sample_s = 0.0005, total_s = 1.0;
  int least_samples = 9;
};

template <class F>
Timing measure(F&& call, Effort effort = {}) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); };

  int64_t calls = 0;
  const auto warmup = Clock::now();
  do {
    call();
    ++calls;
  } while (seconds_since(warmup) < effort.warmup_s);
  const double one = seconds_since(warmup) / static_cast<double>(calls);
  const int64_t per_sample = std::max<int64_t>(1, static_cast<int64_t>(effort.sample_s / one));

  std::vector<double> samples;
  const auto begin = Clock::now();
  while (static_cast<int>(samples.size()) < effort.least_samples || seconds_since(begin) < effort.total_s) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < per_sample; ++i) call();
    samples.push_back(1e6 * seconds_since(start) / static_cast<double>(per_sample));
  }
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) { return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1))]; };
  return {at(0.5), samples.front(), at(0.9)};
}

}  // namespace lorry::cli
