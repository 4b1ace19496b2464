#pragma once

// A global count of changes to what tensors refer to: a gradient was replaced, data were swapped, strides changed in
// place. Code that has examined many tensors, such as an optimizer its gradients, need not examine them again while the
// count is unchanged.

#include <atomic>
#include <cstdint>

#include "lorry/tensor/node.h"

namespace lorry {

namespace detail {
inline constinit std::atomic<uint64_t> g_changes{1}, g_reshaped{1};
}

/// The count, at least 1. A change by another thread is seen after synchronising with that thread.
inline uint64_t changes() { return detail::g_changes.load(std::memory_order_relaxed); }
/// The count at the last change other than a replaced gradient.
inline uint64_t last_reshaped() { return detail::g_reshaped.load(std::memory_order_relaxed); }

/// Counts the replacement of a gradient. Returns the new count, which identifies this change.
inline uint64_t note_change() { return detail::g_changes.fetch_add(1, std::memory_order_relaxed) + 1; }
/// Counts that a tensor got other data or strides.
inline void note_reshaped() {
  const uint64_t now = note_change();
  for (uint64_t last = last_reshaped();
       last < now && !detail::g_reshaped.compare_exchange_weak(last, now, std::memory_order_relaxed);) {
  }
}

/// Makes a tensor refer to the other one's memory, layout and dtype. Its identity and history stay.
inline void take_over(detail::TensorNode& tensor, const detail::TensorNode& other) {
  if (tensor.storage != other.storage) tensor.storage->leave();  // an optimizer's steps now write the new storage
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
