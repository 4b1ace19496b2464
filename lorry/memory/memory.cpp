#include "lorry/memory/memory.h"

#include "lorry/memory/cpu_allocator.h"

namespace lorry::memory {
namespace {

CpuAllocator& allocator(Device device, const char* where) {
  if (device.is_cpu()) [[likely]] return CpuAllocator::instance();
  raise<DeviceError>("{}: no memory on device {} in this build; expected cpu", where, device);
}

}  // namespace

void* allocate(Device device, int64_t bytes) { return allocator(device, "allocate").allocate(bytes); }
void release(Device, void* data, int64_t bytes) noexcept { CpuAllocator::instance().release(data, bytes); }
Stats stats(Device device) { return allocator(device, "memory::stats").stats(); }
void reset_peak(Device device) { allocator(device, "memory::reset_peak").reset_peak(); }
void empty_cache(Device device) { allocator(device, "memory::empty_cache").empty_cache(); }
void set_limit(Device device, int64_t bytes) { allocator(device, "memory::set_limit").set_limit(bytes); }
std::vector<LiveBlock> snapshot(Device device) { return allocator(device, "memory::snapshot").snapshot(); }

}  // namespace lorry::memory
