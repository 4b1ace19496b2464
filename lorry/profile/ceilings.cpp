#include "lorry/profile/ceilings.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/units.h"
#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/device.h"
#include "lorry/memory/allocate.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/ceilings_file.h"
#include "lorry/profile/processor.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/profile/raw_launch.h"
#endif

namespace lorry::profile {
namespace {

BenchmarkResult measure_copy(Device device, int64_t bytes, const BenchmarkOptions& options) {
  const NoGrad no_grad;
  const int64_t half = std::max<int64_t>(1, bytes / 2), count = rotation_length(bytes, device);
  // Rows are aligned like separate allocations.
  const int64_t pitch = (half + 511) / 512 * 512;
  const Options kind{.dtype = kU8, .device = device};
  const Tensor from = full({count, pitch}, 1, kind), to = full({count, pitch}, 2, kind);
  Rotation pairs(
      [&, i = int64_t{0}]() mutable {
        const std::pair pair(to.select(0, i).narrow(0, 0, half), from.select(0, i).narrow(0, 0, half));
        ++i;
        return pair;
      },
      bytes, device);
  return benchmark(
      [&] {
        const auto& [target, source] = pairs.next();
        target.copy_(source);
      },
      options);
}

/// A short measurement: about ten of them make up the ceilings of a device.
BenchmarkOptions brief(Device device) {
  return {.warmup_s = 0.02, .total_s = 0.06, .min_samples = 3, .device = device};
}

template <class F>
double seconds_of(Device device, F&& call) {
  return benchmark(call, brief(device)).min_us / 1e6;
}

/// Bytes of a large copy, or fewer where the device has little memory left.
int64_t copy_bytes(Device device) { return std::min(large_copy(device), device::memory_use(device).free_bytes / 4); }

double read_rate(Device device, int64_t bytes) {
  const Tensor x = full({bytes / size_of(kF32)}, 1, {.dtype = kF32, .device = device});
  return static_cast<double>(x.nbytes()) / seconds_of(device, [&] { do_not_optimize(x.sum()); });
}

/// Operations a second of square products: the highest rate among sizes that double, until a product would take more
/// than 30 ms.
double matmul_rate(Device device, DType dtype, Generator& random) {
  double best = 0;
  for (int64_t n = device.is_cpu() ? 256 : 2048; n <= (device.is_cpu() ? 1024 : 8192); n *= 2) {
    const Options kind{.dtype = dtype, .device = device};
    const Tensor a = randn({n, n}, {.device = device}, &random).to(dtype),
                 b = randn({n, n}, {.device = device}, &random).to(dtype), out = empty({n, n}, kind);
    const double operations = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    const double seconds = benchmark([&] { matmul_out(out, a, b); },
                                     {.warmup_s = 0.01, .total_s = 0.03, .min_samples = 3, .device = device})
                               .min_us /
                           1e6;
    best = std::max(best, operations / seconds);
    if (8 * seconds > 0.03) break;
  }
  return best;
}

void measure_products(Ceilings& found) {
  const Device device = found.device;
  Generator random;
  const MatmulPrecisionScope full_precision(Precision::full);
  for (const DType dtype : {kF64, kF32, kBF16}) found.matmul_flops_per_s[dtype] = matmul_rate(device, dtype, random);
  if (device.is_cpu()) return;
  found.matmul_flops_per_s[kF16] = matmul_rate(device, kF16, random);
  if (device::info(device).compute_major < 8) return;
  const MatmulPrecisionScope tensor_cores(Precision::tf32);
  found.tf32_flops_per_s = matmul_rate(device, kF32, random);
}

void measure_link(Ceilings& found) {
  constexpr int64_t kBytes = int64_t{128} << 20;
  const Device gpu = found.device;
  const Tensor host = full({kBytes}, 1, {.dtype = kU8, .device = kCPU}), pinned = host.pin_memory(),
               there = full({kBytes}, 2, {.dtype = kU8, .device = gpu});
  const auto rate = [&](auto&& call) { return static_cast<double>(kBytes) / seconds_of(gpu, call); };
  const Stream stream = current_stream(gpu);
  found.link_to_device_bytes_per_s =
      rate([&] { device::copy(there.data_ptr(), gpu, pinned.data_ptr(), kCPU, kBytes, stream); });
  found.link_to_host_bytes_per_s =
      rate([&] { device::copy(pinned.data_ptr(), kCPU, there.data_ptr(), gpu, kBytes, stream); });
  found.pageable_to_device_bytes_per_s = rate([&] { do_not_optimize(host.to(gpu)); });
  found.pageable_to_host_bytes_per_s = rate([&] { do_not_optimize(there.to(kCPU)); });
}

void measure_starts(Ceilings& found) {
  const Device device = found.device;
  if (device.is_cpu()) {
    const Tensor x = full({64}, 1, {.dtype = kF32, .device = kCPU}), y = full({64}, 0, {.dtype = kF32, .device = kCPU});
    found.launch_s = seconds_of(device, [&] { x.add_(y); });
    const int64_t threads = cpu::threads();
    found.team_s = seconds_of(
        device, [&] { cpu::parallel_for(threads, 1, [](int64_t begin, int64_t) { do_not_optimize(begin); }); });
    return;
  }
#ifdef LORRY_WITH_CUDA
  const Stream stream = current_stream(device);
  found.launch_s = seconds_of(device, [&] { raw_launch(stream); });
  found.wait_s = seconds_of(device, [&] {
    raw_launch(stream);
    stream.synchronize();
  });
#endif
}

Ceilings measure(Device device) {
  const ModeScope quiet(0, kListenerModes);
  const waits::RuleScope allowed({});
  const double begin = detail::steady_seconds();
  Ceilings found{.device = device,
                 .name = device.is_cpu() ? processor_name() : device::info(device).name,
                 .matmul_flops_per_s = {},
                 .measured_at = utc_now()};
  {
    // Memory of a pool returns to the system at the end, and nothing that the program has cached is used up. On the CPU
    // the cache has a bound, which does the same.
    const std::optional<memory::Pool> pool = device.is_cpu() ? std::nullopt : std::optional<memory::Pool>(device);
    std::optional<memory::PoolScope> scope;
    if (pool) scope.emplace(*pool);
    const int64_t bytes = copy_bytes(device);
    found.copy_bytes_per_s = static_cast<double>(bytes) / (measure_copy(device, bytes, brief(device)).min_us / 1e6);
    found.read_bytes_per_s = read_rate(device, bytes);
    measure_starts(found);
    measure_products(found);
    if (device.is_cuda()) measure_link(found);
  }
  found.measured_in_s = detail::steady_seconds() - begin;
  return found;
}

/// What this process knows. Results are never removed, because callers hold references.
struct Known {
  std::mutex mutex;
  std::map<std::string, const Ceilings*> by_key;
  std::list<Ceilings> all;
};
Known& known() {
  static Known& the = *new Known;
  return the;
}

}  // namespace

const Ceilings& ceilings(Device device, const CeilingsOptions& options) {
  device::require_device(device, "ceilings");
  require<DeviceError>(!device.is_meta(), "ceilings: meta computes nothing; got {}; expected cpu or cuda", device);
  device::require_not_captured("ceilings");
  const std::string key = fmt::format("{}: {}", device, detail::ceilings_key(device));
  Known& process = known();
  const std::scoped_lock lock(process.mutex);
  const auto found = process.by_key.find(key);
  if (found != process.by_key.end() && !options.remeasure) return *found->second;
  std::optional<Ceilings> result;
  if (options.use_files && !options.remeasure) result = detail::load_ceilings(key, device);
  if (!result) {
    result = measure(device);
    if (options.use_files) detail::save_ceilings(*result, key);
  }
  process.by_key[key] = &process.all.emplace_back(*std::move(result));
  return process.all.back();
}

int64_t large_copy(Device device) { return device.is_cpu() ? int64_t{128} << 20 : int64_t{2} << 30; }

const BenchmarkResult& CopyRate::copy(int64_t bytes) {
  const auto [at, is_new] = measured_.try_emplace(bytes);
  if (is_new) at->second = measure_copy(device_, bytes, {.warmup_s = 0.1, .total_s = 0.4, .device = device_});
  return at->second;
}

double CopyRate::of(int64_t bytes) {
  if (bytes >= large_copy(device_)) return ceilings(device_).copy_bytes_per_s / 1e6;
  return static_cast<double>(bytes) / copy(bytes).median_us;
}

}  // namespace lorry::profile
