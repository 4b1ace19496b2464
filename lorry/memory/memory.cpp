#include "lorry/memory/memory.h"

#include <array>

#include "lorry/device/device.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/cpu_allocator.h"
#include "lorry/memory/meta_allocator.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/memory/cuda_allocator.h"
#endif

namespace lorry::memory {
namespace {

/// The functions of a device type's allocator, as a row of a table; a null row means that there is no allocator.
struct Allocator {
  void* (*allocate)(Device device, int64_t bytes);
  void (*release)(Device device, void* data, int64_t bytes) noexcept;
  void (*record_stream)(Device device, void* data, Stream stream);
  Stats (*stats)(Device device);
  void (*reset_peak)(Device device);
  void (*empty_cache)(Device device);
  void (*set_limit)(Device device, int64_t bytes);
  int64_t (*set_cache_bound)(Device device, int64_t bytes);
  std::vector<LiveBlock> (*snapshot)(Device device);
  void* (*allocate_managed)(Device device, int64_t bytes);
  void (*release_managed)(Device device, void* data, int64_t bytes) noexcept;
  void (*record_managed)(Device device, void* data, Stream stream);
  /// Makes the two halves of a Pool.
  detail::PoolParts (*make_pool)(Device device);
  /// The allocators of memory that the device's kernels may use; null behind the last.
  std::array<CachingAllocator*, 3> (*all)(Device device);
};

void* allocate_on_cpu(Device device, int64_t bytes) {
  if (device != kCPU) [[unlikely]]
    device::require_device(device, "allocate");
  return cpu_allocator().allocate(bytes, Stream{kCPU});
}
void release_on_cpu(Device, void* data, int64_t bytes) noexcept { cpu_allocator().release(data, bytes); }

std::array<CachingAllocator*, 3> all_of_cpu(Device) {
#ifdef LORRY_WITH_CUDA
  if (device::available(DeviceType::cuda)) return {&cpu_allocator(), &pinned_allocator()};
#endif
  return {&cpu_allocator()};
}

constexpr Allocator kCpuAllocator = {
    .allocate = allocate_on_cpu,
    .release = release_on_cpu,
    .record_stream = [](Device, void*, Stream) {},
    .stats = [](Device) { return cpu_allocator().stats(); },
    .reset_peak = [](Device) { cpu_allocator().reset_peak(); },
    .empty_cache = [](Device) { cpu_allocator().empty_cache(); },
    .set_limit = [](Device, int64_t bytes) { cpu_allocator().set_limit(bytes); },
    .set_cache_bound = [](Device, int64_t bytes) { return cpu_allocator().set_cache_bound(bytes); },
    .snapshot = [](Device) { return cpu_allocator().snapshot(); },
    .allocate_managed = allocate_on_cpu,
    .release_managed = release_on_cpu,
    .record_managed = [](Device, void*, Stream) {},
    .make_pool =
        [](Device) {
          return detail::PoolParts{.device = {&cpu_allocator(), cpu_allocator().make_pool()}};
        },
    .all = all_of_cpu,
};

void* allocate_on_meta(Device device, int64_t bytes) {
  return meta_allocator(device, "allocate").allocate(bytes, Stream{device});
}
void release_on_meta(Device device, void* data, int64_t bytes) noexcept {
  meta_allocator(device, "release").release(data, bytes);
}

constexpr Allocator kMetaAllocator = {
    .allocate = allocate_on_meta,
    .release = release_on_meta,
    .record_stream = [](Device, void*, Stream) {},
    .stats = [](Device device) { return meta_allocator(device, "memory::stats").stats(); },
    .reset_peak = [](Device device) { meta_allocator(device, "memory::reset_peak").reset_peak(); },
    .empty_cache = [](Device device) { meta_allocator(device, "memory::empty_cache").empty_cache(); },
    .set_limit = [](Device device, int64_t bytes) { meta_allocator(device, "memory::set_limit").set_limit(bytes); },
    .set_cache_bound =
        [](Device device, int64_t bytes) {
          return meta_allocator(device, "memory::set_cache_bound").set_cache_bound(bytes);
        },
    .snapshot = [](Device device) { return meta_allocator(device, "memory::snapshot").snapshot(); },
    .allocate_managed = allocate_on_meta,
    .release_managed = release_on_meta,
    .record_managed = [](Device, void*, Stream) {},
    .make_pool = [](Device) { return detail::PoolParts{}; },
    .all = [](Device) { return std::array<CachingAllocator*, 3>{}; },
};

#ifdef LORRY_WITH_CUDA
constexpr Allocator kCudaAllocator = {
    .allocate =
        [](Device device, int64_t bytes) {
          // before current_stream: the device may not exist
          CachingAllocator& allocator = cuda_allocator(device, "allocate");
          return allocator.allocate(bytes, current_stream(device));
        },
    .release = [](Device device, void* data,
                  int64_t bytes) noexcept { cuda_allocator(device, "release").release(data, bytes); },
    .record_stream = [](Device device, void* data,
                        Stream stream) { cuda_allocator(device, "record_stream").record_stream(data, stream); },
    .stats = [](Device device) { return cuda_allocator(device, "memory::stats").stats(); },
    .reset_peak = [](Device device) { cuda_allocator(device, "memory::reset_peak").reset_peak(); },
    .empty_cache = [](Device device) { cuda_allocator(device, "memory::empty_cache").empty_cache(); },
    .set_limit = [](Device device, int64_t bytes) { cuda_allocator(device, "memory::set_limit").set_limit(bytes); },
    .set_cache_bound =
        [](Device device, int64_t bytes) {
          return cuda_allocator(device, "memory::set_cache_bound").set_cache_bound(bytes);
        },
    .snapshot = [](Device device) { return cuda_allocator(device, "memory::snapshot").snapshot(); },
    .allocate_managed =
        [](Device device, int64_t bytes) {
          CachingAllocator& allocator = managed_allocator(device, "allocate_managed");
          return allocator.allocate(bytes, current_stream(device));
        },
    .release_managed =
        [](Device device, void* data, int64_t bytes) noexcept {
          managed_allocator(device, "release_managed").release(data, bytes);
        },
    .record_managed = [](Device device, void* data,
                         Stream stream) { managed_allocator(device, "record_managed").record_stream(data, stream); },
    .make_pool =
        [](Device device) {
          CachingAllocator &own = cuda_allocator(device, "memory::Pool"), &pinned = pinned_allocator();
          return detail::PoolParts{.device = {&own, own.make_pool()}, .pinned = {&pinned, pinned.make_pool()}};
        },
    .all =
        [](Device device) {
          return std::array<CachingAllocator*, 3>{&cuda_allocator(device, "memory::Leases"), &pinned_allocator(),
                                                  &managed_allocator(device, "memory::Leases")};
        },
};
constexpr const Allocator* kCudaRow = &kCudaAllocator;
bool pins() { return device::available(DeviceType::cuda); }
#else
constexpr const Allocator* kCudaRow = nullptr;
#endif

/// In the order of DeviceType; null if this build has no memory of that type.
constexpr const Allocator* kAllocators[kDeviceTypeCount] = {&kCpuAllocator, kCudaRow, &kMetaAllocator};

const Allocator& allocator(Device device, const char* where) {
  if (static_cast<int>(device.type) < kDeviceTypeCount) [[likely]]
    if (const Allocator* found = kAllocators[static_cast<int>(device.type)]) [[likely]]
      return *found;
  raise_as<DeviceError>(running_or(where), "no memory on device {} in this build; expected cpu", device);
}

}  // namespace

void* allocate(Device device, int64_t bytes) { return allocator(device, "allocate").allocate(device, bytes); }
// Memory that was allocated on a device has an allocator there, so this is never null.
void release(Device device, void* data, int64_t bytes) noexcept {
  if (data != nullptr) kAllocators[static_cast<int>(device.type)]->release(device, data, bytes);
}
void record_stream(Device device, void* data, Stream stream) {
  allocator(device, "record_stream").record_stream(device, data, stream);
}
void* allocate_managed(Device device, int64_t bytes) {
  return allocator(device, "allocate_managed").allocate_managed(device, bytes);
}
void record_managed(Device device, void* data, Stream stream) {
  allocator(device, "record_managed").record_managed(device, data, stream);
}
void release_managed(Device device, void* data, int64_t bytes) noexcept {
  if (data != nullptr) kAllocators[static_cast<int>(device.type)]->release_managed(device, data, bytes);
}
Stats stats(Device device) { return allocator(device, "memory::stats").stats(device); }
void reset_peak(Device device) { allocator(device, "memory::reset_peak").reset_peak(device); }
void empty_cache(Device device) { allocator(device, "memory::empty_cache").empty_cache(device); }
void set_limit(Device device, int64_t bytes) { allocator(device, "memory::set_limit").set_limit(device, bytes); }
int64_t set_cache_bound(Device device, int64_t bytes) {
  require<ValueError>(bytes >= 0, "memory::set_cache_bound: negative bound; got {}; expected a number of bytes", bytes);
  return allocator(device, "memory::set_cache_bound").set_cache_bound(device, bytes);
}
std::array<CachingAllocator*, 3> detail::allocators_of(Device device) {
  return allocator(device, "memory::Leases").all(device);
}
std::vector<LiveBlock> snapshot(Device device) { return allocator(device, "memory::snapshot").snapshot(device); }

int64_t device_use(Device device) {
  const device::MemoryUse use = device::memory_use(device);
  return use.total_bytes - use.free_bytes;
}

Pool::Pool(Device device) : parts_(allocator(device, "memory::Pool").make_pool(device)) {}
Pool::~Pool() {
  for (const detail::PoolPart& part : {parts_.device, parts_.pinned})
    if (part.allocator != nullptr) static_cast<CachingAllocator*>(part.allocator)->release_pool(part.id);
}
int64_t Pool::reserved() const {
  int64_t bytes = 0;
  for (const detail::PoolPart& part : {parts_.device, parts_.pinned})
    if (part.allocator != nullptr) bytes += static_cast<CachingAllocator*>(part.allocator)->pool_reserved(part.id);
  return bytes;
}

#ifdef LORRY_WITH_CUDA
void* allocate_pinned(int64_t bytes) {
  return pins() ? pinned_allocator().allocate(bytes, Stream{kCPU}) : allocate(kCPU, bytes);
}
void record_pinned(void* data, Stream stream) {
  if (pins()) pinned_allocator().record_stream(data, stream);
}
void release_pinned(void* data, int64_t bytes) noexcept {
  pins() ? pinned_allocator().release(data, bytes) : release(kCPU, data, bytes);
}
#else
void* allocate_pinned(int64_t bytes) { return allocate(kCPU, bytes); }
void record_pinned(void*, Stream) {}
void release_pinned(void* data, int64_t bytes) noexcept { release(kCPU, data, bytes); }
#endif

}  // namespace lorry::memory
