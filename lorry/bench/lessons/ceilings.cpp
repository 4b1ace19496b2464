// The ceilings that the lessons refer to.

#include "lorry/profile/ceilings.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {

Ceilings measure_ceilings(const Settings& settings) {
  const Device device = settings.device;
  const NoGrad no_grad;
  Ceilings found;
  const auto measure = [&](double& rate, const auto& measured) {
    try {
      rate = measured();
    } catch (const OutOfMemory& error) {
      found.error = error.what();
    }
    memory::empty_cache(device);
  };
  measure(found.copy_bytes, [&] { return profile::CopyRate(device).of(profile::large_copy(device)); });
  for (const DType dtype : {kF64, kF32, kBF16})
    measure(found.flops[std::string(name(dtype))], [&] { return profile::matmul_rate(device, dtype); });
  measure(found.call_us, [&] {
    const Tensor one = ones({1}, {.device = device});
    return profile::benchmark([&] { one.add_(1); }, {.warmup_s = 0.05, .total_s = 0.2, .device = device}).median_us;
  });
  if (!device.is_cpu()) {
    measure(found.to_device_bytes, [&] { return profile::link_rate(device, true); });
    measure(found.to_host_bytes, [&] { return profile::link_rate(device, false); });
  }
  std::erase_if(found.flops, [](const auto& rate) { return rate.second <= 0; });
  return found;
}

}  // namespace lorry::bench::lessons
