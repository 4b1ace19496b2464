#pragma once

// Updating the peak of a counter from several threads.

#include <atomic>
#include <cstdint>

namespace lorry::memory {

/// Sets `peak` to `value` if `value` is larger.
inline void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace lorry::memory
