// The ceilings that the lessons refer to.

#include "lorry/profile/ceilings.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {

Ceilings measure_ceilings(const Settings& settings) {
  const Device device = settings.device;
  const NoGrad no_grad;
  Ceilings found;
  try {
    // First, so that it is known where the memory is too small for what follows.
    const Tensor one = ones({1}, {.device = device});
    found.call_us =
        profile::benchmark([&] { one.add_(1); }, {.warmup_s = 0.05, .total_s = 0.2, .device = device}).median_us;
    // Measured in this run, as all figures of the lessons are.
    const profile::Ceilings& measured = profile::ceilings(device, {.remeasure = true});
    found.copy_bytes = measured.copy_bytes_per_s / 1e6;
    for (const auto& [dtype, rate] : measured.matmul_flops_per_s) found.flops[std::string(name(dtype))] = rate / 1e6;
    found.flops["tf32"] = measured.tf32_flops_per_s / 1e6;
    found.to_device_bytes = measured.link_to_device_bytes_per_s / 1e6;
    found.to_host_bytes = measured.link_to_host_bytes_per_s / 1e6;
  } catch (const OutOfMemory& error) {
    found.error = error.what();
  }
  memory::empty_cache(device);
  std::erase_if(found.flops, [](const auto& rate) { return rate.second <= 0; });
  return found;
}

}  // namespace lorry::bench::lessons
