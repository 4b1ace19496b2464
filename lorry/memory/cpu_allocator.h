#pragma once

// The CPU's allocator: the caching allocator with pages of the system as its source. Its cache is bounded by
// LORRY_CPU_CACHE bytes, by default a quarter of the memory that this process may use. It is never destroyed, because
// tensors may outlive static objects.

#include <atomic>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

namespace detail {
extern constinit std::atomic<CachingAllocator*> g_cpu_allocator;
CachingAllocator& make_cpu_allocator();
}  // namespace detail

/// Throws ValueError if LORRY_CPU_CACHE is not a number of bytes.
inline CachingAllocator& cpu_allocator() {
  CachingAllocator* made = detail::g_cpu_allocator.load(std::memory_order_acquire);
  return made != nullptr ? *made : detail::make_cpu_allocator();
}

}  // namespace lorry::memory
