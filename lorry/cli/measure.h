#pragma once

// Timing of short calls: warm up, choose how many calls make a sample that the clock can resolve, report median, least
// and 90th percentile of a call. On a GPU a sample ends when the device is done; what the host alone took is reported
// beside it.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "lorry/device/device.h"

namespace lorry::cli {

struct Timing {
  double median_us = 0, min_us = 0, p90_us = 0;
  double submit_us = 0;  ///< median until the call had returned
};

/// Keeps the compiler from dropping a computation whose result nobody reads.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

struct Effort {
  double warmup_s = 0.2, sample_s = 0.0005, total_s = 1.0;
  int least_samples = 9;
  Device device = kCPU;  ///< where the calls work
};

template <class F>
Timing measure(F&& call, Effort effort = {}) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto wait = [&] {
    if (!effort.device.is_cpu()) device::synchronize(effort.device);
  };
  // Enough calls that waiting for a GPU, some 10 us, does not count.
  if (!effort.device.is_cpu()) effort.sample_s = std::max(effort.sample_s, 0.004);

  int64_t calls = 0;
  const auto warmup = Clock::now();
  do {
    call();
    if (++calls % 64 == 0) wait();
  } while (seconds_since(warmup) < effort.warmup_s);
  wait();
  const double one = seconds_since(warmup) / static_cast<double>(calls);
  const int64_t per_sample = std::max<int64_t>(1, static_cast<int64_t>(effort.sample_s / one));

  std::vector<double> samples, submissions;
  const auto begin = Clock::now();
  while (static_cast<int>(samples.size()) < effort.least_samples || seconds_since(begin) < effort.total_s) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < per_sample; ++i) call();
    submissions.push_back(1e6 * seconds_since(start) / static_cast<double>(per_sample));
    wait();
    samples.push_back(1e6 * seconds_since(start) / static_cast<double>(per_sample));
  }
  std::sort(samples.begin(), samples.end());
  std::sort(submissions.begin(), submissions.end());
  const auto at = [](const std::vector<double>& sorted, double share) {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  };
  return {at(samples, 0.5), samples.front(), at(samples, 0.9), at(submissions, 0.5)};
}

}  // namespace lorry::cli
