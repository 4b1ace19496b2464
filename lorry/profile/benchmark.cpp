#include "lorry/profile/benchmark.h"

#include <algorithm>
#include <limits>

#include "lorry/base/error.h"
#include "lorry/device/device.h"

namespace lorry::profile {
namespace {

/// Waiting for a GPU takes about 10 us; with samples of this length it is negligible.
constexpr double kLeastGpuSample = 0.004;

}  // namespace

namespace detail {

namespace {

/// Checks the options and returns how long to measure.
Sampling sampling_of(const BenchmarkOptions& options, bool has_setup) {
  device::require_device(options.device, "benchmark");
  for (const auto& [name, seconds] :
       {std::pair("warmup_s", options.warmup_s), {"sample_s", options.sample_s}, {"total_s", options.total_s}})
    require<ValueError>(seconds >= 0 && seconds <= std::numeric_limits<double>::max(),
                        "benchmark: {} is no time; got {}; expected a finite number of seconds, 0 or more", name,
                        seconds);
  for (const auto& [name, count] : {std::pair("min_samples", options.min_samples), {"max_inputs", options.max_inputs}})
    require<ValueError>(count > 0, "benchmark: {} is too small; got {}; expected 1 or more", name, count);

  return {.warmup_s = options.warmup_s,
          .sample_s = options.device.is_cuda() ? std::max(options.sample_s, kLeastGpuSample) : options.sample_s,
          .total_s = options.total_s,
          .min_samples = options.min_samples,
          .max_calls_per_sample = has_setup ? options.max_inputs : std::numeric_limits<int64_t>::max()};
}

Instruments instruments_of(Device device) {
  return {.seconds = steady_seconds, .synchronize = [device] {
            if (device.is_cuda()) device::synchronize(device);
          }};
}

}  // namespace

BenchmarkResult benchmark(const Calls& calls, const BenchmarkOptions& options, bool has_setup) {
  return take_samples(calls, sampling_of(options, has_setup), instruments_of(options.device));
}

PairResult benchmark_pair(const Calls& first, const Calls& second, const BenchmarkOptions& options) {
  return take_pairs(first, second, sampling_of(options, false), instruments_of(options.device));
}

}  // namespace detail

int64_t bytes_beyond_caches(Device device) { return device.is_cpu() ? int64_t{512} << 20 : int64_t{256} << 20; }

int64_t rotation_length(int64_t bytes, Device device) {
  require<ValueError>(bytes > 0,
                      "Rotation: inputs without bytes cannot exceed a cache; got {} bytes; expected 1 or more", bytes);
  const int64_t beyond = bytes_beyond_caches(device);
  return beyond / bytes + (beyond % bytes != 0);
}

}  // namespace lorry::profile
