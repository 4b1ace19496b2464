#pragma once

// CUDA's allocators: two a device, of which one is for managed memory, and one for page-locked host memory.
// LORRY_CUDA_MEMORY, read when the first is made, is "poison" or "direct" for debugging (see Caching); anything else is
// a ValueError. None is ever destroyed: tensors may outlive static objects.

#include <atomic>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

namespace detail {
extern std::atomic<CachingAllocator*> g_cuda_allocators[kMaxDevices];
CachingAllocator& make_cuda_allocator(Device device, const char* where);
}  // namespace detail

/// Throws DeviceError naming `where` for a device that does not exist.
inline CachingAllocator& cuda_allocator(Device device, const char* where) {
  if (static_cast<unsigned>(device.index) < static_cast<unsigned>(kMaxDevices)) [[likely]]
    if (CachingAllocator* made = detail::g_cuda_allocators[device.index].load(std::memory_order_acquire)) [[likely]]
      return *made;
  return detail::make_cuda_allocator(device, where);
}

/// Throws DeviceError naming `where` for a device that does not exist.
CachingAllocator& managed_allocator(Device device, const char* where);

/// Blocks belong to the host (the null stream of the CPU); only noted streams delay their reuse.
CachingAllocator& pinned_allocator();

}  // namespace lorry::memory
