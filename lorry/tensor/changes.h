#pragma once

// Counts how often a tensor anywhere came to refer to something else: a gradient was replaced, data were swapped,
// strides changed in place. Whoever has looked at many tensors, such as an optimizer at its gradients, need not look
// again while the count stands.

#include <atomic>
#include <cstdint>

#include "lorry/tensor/node.h"

namespace lorry {

namespace detail {
inline constinit std::atomic<uint64_t> g_changes{1}, g_reshaped{1};
}

/// The count, at least 1. What another thread changes is seen by whoever is synchronised with it.
inline uint64_t changes() { return detail::g_changes.load(std::memory_order_relaxed); }
/// What it was at the last change that was no replaced gradient.
inline uint64_t last_reshaped() { return detail::g_reshaped.load(std::memory_order_relaxed); }

/// A gradient was replaced: returns the count with this change, by which whoever holds gradients can tell which.
inline uint64_t note_change() { return detail::g_changes.fetch_add(1, std::memory_order_relaxed) + 1; }
/// A tensor has other data or strides.
inline void note_reshaped() {
  const uint64_t now = note_change();
  for (uint64_t last = last_reshaped();
       last < now && !detail::g_reshaped.compare_exchange_weak(last, now, std::memory_order_relaxed);) {
  }
}

/// The tensor refers to what the other one refers to: its memory, layout and dtype. Its identity and its history stay.
inline void take_over(detail::TensorNode& tensor, const detail::TensorNode& other) {
  if (tensor.storage != other.storage) tensor.storage->leave();  // an optimizer's steps write the new one
  tensor.storage = other.storage;
  tensor.base = nullptr;
  tensor.offset = other.offset;
  tensor.numel = other.numel;
  tensor.dtype = other.dtype;
  tensor.contiguous = other.contiguous;
  tensor.layout = other.layout;
  note_reshaped();
}

}  // namespace lorry
