// Collectives of all ranks by size: mpirun -n 2 lorry bench parallel. The rate is the bus bandwidth, as nccl-tests
// counts it: the bytes that cross the slowest link of a ring, whatever the number of ranks.

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/suites.h"
#include "lorry/device/device.h"
#include "lorry/ops/ops.h"
#include "lorry/parallel/collectives.h"

namespace lorry::bench {
namespace {

using parallel::ProcessGroup;

constexpr int64_t kSizes[] = {8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, int64_t{256} << 20};
constexpr int64_t kMostOnCpu = 16 << 20;
constexpr int kSamples = 15;

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1 << 10 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} B", bytes);
}

/// A collective over `bytes` in all, and what of that crosses a link of a ring of n ranks.
struct Case {
  const char* name;
  double (*bus)(double n);
  std::function<void()> (*make)(const ProcessGroup& group, int64_t elements, Device device);
};
double twice_around(double n) { return 2 * (n - 1) / n; }
double once_around(double n) { return (n - 1) / n; }

constexpr Case kCases[] = {
    {"all_reduce", twice_around,
     [](const ProcessGroup& group, int64_t elements, Device device) -> std::function<void()> {
       return [group, x = zeros({elements}, {.device = device})] { parallel::all_reduce_(x, group); };
     }},
    {"all_gather", once_around,
     [](const ProcessGroup& group, int64_t elements, Device device) -> std::function<void()> {
       const Tensor part = zeros({elements / group.size()}, {.device = device});
       return [group, part, all = zeros({part.numel() * group.size()}, {.device = device})] {
         parallel::all_gather_out(all, part, group);
       };
     }},
    {"reduce_scatter", once_around,
     [](const ProcessGroup& group, int64_t elements, Device device) -> std::function<void()> {
       const Tensor part = zeros({elements / group.size()}, {.device = device});
       return [group, part, all = zeros({part.numel() * group.size()}, {.device = device})] {
         parallel::reduce_scatter_out(part, all, group);
       };
     }},
};

/// The time of a call, of the slowest rank: every rank makes the same number of calls.
profile::BenchmarkResult measure(const ProcessGroup& group, const std::function<void()>& call, int64_t bytes,
                                 Device device) {
  const int64_t calls = std::clamp<int64_t>((int64_t{64} << 20) / bytes, 4, 100);
  std::vector<double> samples;
  for (int sample = -2; sample < kSamples; ++sample) {
    parallel::barrier(group);
    const double begin = profile::detail::steady_seconds();
    for (int64_t i = 0; i < calls; ++i) call();
    device::synchronize(device);
    const double us = 1e6 * (profile::detail::steady_seconds() - begin) / static_cast<double>(calls);
    double slowest = 0;
    for (const std::string& x : group.exchange(fmt::format("{}", us))) slowest = std::max(slowest, std::stod(x));
    if (sample >= 0) samples.push_back(slowest);
  }
  std::ranges::sort(samples);
  const double median = samples[kSamples / 2];
  return {.median_us = median,
          .min_us = samples.front(),
          .p90_us = samples[kSamples * 9 / 10],
          .spread = (samples[kSamples * 3 / 4] - samples[kSamples / 4]) / median,
          .submit_us = median,
          .samples = kSamples,
          .calls_per_sample = calls};
}

}  // namespace

std::vector<Result> parallel_suite(const Filter& filter) {
  const NoGrad no_grad;
  const ProcessGroup group = parallel::join();
  if (group.size() == 1)
    raise<ValueError>(
        "bench: the suite parallel measures several processes; start it with mpirun -n N lorry bench "
        "parallel");
  const Device device = default_device().is_cuda() ? group.device() : kCPU;
  std::vector<Result> results;
  for (const Case& x : kCases)
    for (const int64_t bytes : kSizes) {
      const std::string name = fmt::format("{} of {} on {}", x.name, size_text(bytes), group.size());
      const int64_t elements = bytes / size_of(kF32);
      if (elements < group.size() || (device.is_cpu() && bytes > kMostOnCpu) || !filter(name)) continue;
      const double n = group.size();
      results.push_back({.suite = "parallel",
                         .name = name,
                         .time = measure(group, x.make(group, elements, device), bytes, device),
                         .bytes = static_cast<int64_t>(static_cast<double>(bytes) * x.bus(n)),
                         .device = device});
    }
  if (group.rank() > 0) results.clear();  // rank 0 reports
  return results;
}

}  // namespace lorry::bench
