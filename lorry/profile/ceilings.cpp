#include "lorry/profile/ceilings.h"

#include <algorithm>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"

namespace lorry::profile {

int64_t large_copy(Device device) { return device.is_cpu() ? int64_t{128} << 20 : int64_t{2} << 30; }

const BenchmarkResult& CopyRate::copy(int64_t bytes) {
  const auto [at, is_new] = measured_.try_emplace(bytes);
  if (!is_new) return at->second;
  const NoGrad no_grad;
  const int64_t half = std::max<int64_t>(1, bytes / 2), count = rotation_length(bytes, device_);
  // Rows are aligned like separate allocations.
  const int64_t pitch = (half + 511) / 512 * 512;
  const Options options{.dtype = kU8, .device = device_};
  const Tensor from = full({count, pitch}, 1, options), to = full({count, pitch}, 2, options);
  Rotation pairs(
      [&, i = int64_t{0}]() mutable {
        const std::pair pair(to.select(0, i).narrow(0, 0, half), from.select(0, i).narrow(0, 0, half));
        ++i;
        return pair;
      },
      bytes, device_);
  at->second = benchmark(
      [&] {
        const auto& [target, source] = pairs.next();
        target.copy_(source);
      },
      {.warmup_s = 0.1, .total_s = 0.4, .device = device_});
  return at->second;
}

double link_rate(Device gpu, bool to_gpu) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const NoGrad no_grad;
  const Tensor here = full({kBytes}, 1, {.dtype = kU8, .device = kCPU}).pin_memory(),
               there = full({kBytes}, 2, {.dtype = kU8, .device = gpu});
  const Tensor &from = to_gpu ? here : there, &to = to_gpu ? there : here;
  return static_cast<double>(kBytes) / benchmark([&] { to.copy_(from); }, {.device = gpu}).median_us;
}

double matmul_rate(Device device, DType dtype) {
  const int64_t n = device.is_cpu() ? 1024 : 8192;
  const NoGrad no_grad;
  const Tensor a = randn({n, n}, {.device = device}).to(dtype), b = randn({n, n}, {.device = device}).to(dtype),
               out = empty({n, n}, {.dtype = dtype, .device = device});
  const double products = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  return products / benchmark([&] { matmul_out(out, a, b); }, {.device = device}).median_us;
}

}  // namespace lorry::profile
