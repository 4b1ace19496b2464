#pragma once

// TensorNode: what a Tensor points to. Only rooms that build tensors (tensor, ops, autograd) look inside.

#include <atomic>
#include <cstdint>
#include <memory>

#include "lorry/base/intrusive_ptr.h"
#include "lorry/base/modes.h"
#include "lorry/base/recycled.h"
#include "lorry/layout/dtype.h"
#include "lorry/layout/layout.h"
#include "lorry/tensor/storage.h"

namespace lorry::detail {

/// What autograd hangs on a tensor; opaque here.
struct GradSlot {
  virtual ~GradSlot() = default;
};

struct TensorNode : Counted, Recycled<TensorNode> {
  TensorNode(IntrusivePtr<Storage> memory, const Layout& shape, int64_t first, DType type)
      : storage(std::move(memory)),
        offset(first),
        numel(shape.numel()),
        dtype(type),
        contiguous(shape.is_contiguous()),
        inference(mode(kInferenceMode)) {
    layout.rank = shape.rank;
    for (int i = 0; i < shape.rank; ++i) {
      layout.sizes[i] = shape.sizes[i];
      layout.strides[i] = shape.strides[i];
    }
  }

  IntrusivePtr<Storage> storage;
  /// the tensor that owns the memory, when this is a view that autograd may have to follow
  IntrusivePtr<TensorNode> base;
  std::unique_ptr<GradSlot> grad;
  int64_t offset;  ///< of the first element, in elements from the start of the storage
  int64_t numel;
  DType dtype;
  bool contiguous;
  bool requires_grad = false;
  /// a view (of a view) made while nothing was recorded: follows no history, and may not start one
  bool cut_view = false;
  bool inference;                    ///< made in inference mode: carries no versions and never enters a graph
  bool wrapped_number = false;       ///< stands for a Scalar: promotes by kind alone
  uint32_t recording = t_recording;  ///< in which it was made; 0: none
  std::atomic<uint32_t> observers{0};
  Layout layout;

  /// The address of the first element. An empty tensor may lie at any offset, also of no memory at all: no pointer
  /// arithmetic.
  void* data() const {
    const uintptr_t first = reinterpret_cast<uintptr_t>(storage->data());
    return reinterpret_cast<void*>(first + static_cast<uintptr_t>(offset) * static_cast<uintptr_t>(size_of(dtype)));
  }
  /// The owners, without those who only watch it (trace/captured.h).
  uint32_t users() const { return owners() - observers.load(std::memory_order_acquire); }
  void destroy() { delete this; }
};

}  // namespace lorry::detail
