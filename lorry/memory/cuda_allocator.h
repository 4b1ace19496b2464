#pragma once

// The allocators for CUDA: per device one for ordinary and one for managed memory, and one for pinned host memory.
// LORRY_CUDA_MEMORY is read when the first is created: "poison" or "direct" for debugging (see Caching); any other
// value is a ValueError. Allocators are never destroyed, because tensors may outlive static objects.

#include <atomic>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

namespace detail {
extern std::atomic<CachingAllocator*> g_cuda_allocators[kMaxDevices];
CachingAllocator& make_cuda_allocator(Device device, const char* where);
}  // namespace detail

/// Throws DeviceError that names `where` for a device that does not exist.
inline CachingAllocator& cuda_allocator(Device device, const char* where) {
  if (static_cast<unsigned>(device.index) < static_cast<unsigned>(kMaxDevices)) [[likely]]
    if (CachingAllocator* made = detail::g_cuda_allocators[device.index].load(std::memory_order_acquire)) [[likely]]
      return *made;
  return detail::make_cuda_allocator(device, where);
}

/// Throws DeviceError that names `where` for a device that does not exist.
CachingAllocator& managed_allocator(Device device, const char* where);

/// Blocks belong to the host (the CPU's null stream); only streams noted by record_stream delay their reuse.
CachingAllocator& pinned_allocator();

}  // namespace lorry::memory
