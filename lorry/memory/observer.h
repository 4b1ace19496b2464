#pragma once

// Who hears of blocks of memory that are handed out and given back: a profiler. Without an observer an allocation costs
// one more load and test.

#include <atomic>
#include <cstdint>
#include <string>

#include "lorry/memory/blocks.h"

namespace lorry::memory {

/// A block of a caching allocator. `bytes` is the block's size, which is what statistics count.
struct BlockView {
  const char* allocator;  ///< its name: "cpu", "cuda:0", ...; lives as long as the process
  const void* data;
  int64_t bytes;
  const char* made_by;  ///< the operator, "" outside operators
};

/// Called on the thread that allocates or releases, perhaps under the allocator's lock: must not allocate tensors. Must
/// not throw.
struct Observer {
  void (*allocated)(const BlockView& block) noexcept;
  void (*released)(const BlockView& block) noexcept;
};

namespace detail {
inline constinit std::atomic<const Observer*> g_observer{nullptr};
}

/// Sets the observer of all allocators; null removes it. Returns the previous one.
inline const Observer* set_observer(const Observer* observer) noexcept {
  return detail::g_observer.exchange(observer, std::memory_order_acq_rel);
}

/// For allocators: a block begins to be in use.
inline void announce_allocated(const std::string& allocator, const Block& block) noexcept {
  const Observer* const observer = detail::g_observer.load(std::memory_order_acquire);
  if (observer != nullptr) [[unlikely]]
    observer->allocated({allocator.c_str(), block.data, block.size, block.made_by.load(std::memory_order_relaxed)});
}
/// Its use ends. Does nothing for a block whose made_by is null, because that has been announced.
inline void announce_released(const std::string& allocator, const Block& block) noexcept {
  const Observer* const observer = detail::g_observer.load(std::memory_order_acquire);
  if (observer == nullptr) [[likely]]
    return;
  if (const char* const made_by = block.made_by.load(std::memory_order_relaxed))
    observer->released({allocator.c_str(), block.data, block.size, made_by});
}

}  // namespace lorry::memory
