#pragma once

// Counts how often a tensor anywhere came to refer to something else: a gradient was replaced, data were swapped, strides changed in
// place. Whoever has looked at many tensors, such as an optimizer at its gradients, need not look again while the count stands.

#include <atomic>
#include <cstdint>

namespace lorry {

namespace detail {
inline constinit std::atomic<uint64_t> g_changes{0};
}

/// The count. What another thread changes is seen by whoever is synchronised with it.
inline uint64_t changes() { return detail::g_changes.load(std::memory_order_relaxed); }
inline void note_change() { detail::g_changes.fetch_add(1, std::memory_order_relaxed); }

}  // namespace lorry
