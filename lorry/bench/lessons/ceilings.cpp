// The ceilings that the lessons refer to.

#include "lorry/profile/ceilings.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {

Ceilings measure_ceilings(const Settings& settings) {
  const Device device = settings.device;
  const NoGrad no_grad;
  Ceilings found;
  found.copy_bytes = profile::CopyRate(device).of(profile::large_copy(device));
  for (const DType dtype : {kF64, kF32, kBF16})
    found.flops[std::string(name(dtype))] = profile::matmul_rate(device, dtype);
  const Tensor one = ones({1}, {.device = device});
  found.call_us =
      profile::benchmark([&] { one.add_(1); }, {.warmup_s = 0.05, .total_s = 0.2, .device = device}).median_us;
  if (!device.is_cpu()) {
    found.to_device_bytes = profile::link_rate(device, true);
    found.to_host_bytes = profile::link_rate(device, false);
  }
  memory::empty_cache(device);
  return found;
}

}  // namespace lorry::bench::lessons
