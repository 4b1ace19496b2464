#pragma once

// Who hears of blocks of memory that are handed out and given back: a profiler. Without an observer an allocation costs
// one more load and test.

#include <atomic>
#include <cstdint>

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

}  // namespace lorry::memory
