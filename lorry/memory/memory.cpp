#include "lorry/memory/memory.h"

#include "lorry/memory/cpu_allocator.h"

namespace lorry::memory {
namespace {

/// What a device type's allocator does, as a table row, so that a device without one is a null entry.
struct Allocator {
  void* (*allocate)(int64_t bytes);
  void (*release)(void* data, int64_t bytes) noexcept;
  Stats (*stats)();
  void (*reset_peak)();
  void (*empty_cache)();
  void (*set_limit)(int64_t bytes);
  std::vector<LiveBlock> (*snapshot)();
};

constexpr Allocator kCpuAllocator = {
    .allocate = [](int64_t bytes) { return CpuAllocator::instance().allocate(bytes); },
    .release = [](void* data, int64_t bytes) noexcept { CpuAllocator::instance().release(data, bytes); },
    .stats = [] { return CpuAllocator::instance().stats(); },
    .reset_peak = [] { CpuAllocator::instance().reset_peak(); },
    .empty_cache = [] { CpuAllocator::instance().empty_cache(); },
    .set_limit = [](int64_t bytes) { CpuAllocator::instance().set_limit(bytes); },
    .snapshot = [] { return CpuAllocator::instance().snapshot(); },
};

/// In the order of DeviceType; null where this build has no memory of that type.
constexpr const Allocator* kAllocators[kDeviceTypeCount] = {&kCpuAllocator, nullptr};

const Allocator& allocator(Device device, const char* where) {
  if (const Allocator* found = kAllocators[static_cast<int>(device.type)]) [[likely]]
    return *found;
  raise<DeviceError>("{}: no memory on device {} in this build; expected cpu", where, device);
}

}  // namespace

void* allocate(Device device, int64_t bytes) { return allocator(device, "allocate").allocate(bytes); }
// What was allocated on a device has an allocator there.
void release(Device device, void* data, int64_t bytes) noexcept { kAllocators[static_cast<int>(device.type)]->release(data, bytes); }
Stats stats(Device device) { return allocator(device, "memory::stats").stats(); }
void reset_peak(Device device) { allocator(device, "memory::reset_peak").reset_peak(); }
void empty_cache(Device device) { allocator(device, "memory::empty_cache").empty_cache(); }
void set_limit(Device device, int64_t bytes) { allocator(device, "memory::set_limit").set_limit(bytes); }
std::vector<LiveBlock> snapshot(Device device) { return allocator(device, "memory::snapshot").snapshot(); }

}  // namespace lorry::memory
