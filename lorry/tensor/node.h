#pragma once

// TensorNode: the object that a Tensor points to. Only rooms that build tensors (tensor, ops, autograd) use its
// members.

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

/// Autograd's data of a tensor; opaque here.
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
  /// of a view whose history autograd may have to track: the tensor that it is a view of (never a view itself)
  IntrusivePtr<TensorNode> base;
  std::unique_ptr<GradSlot> grad;
  int64_t offset;  ///< of the first element, in elements from the start of the storage
  int64_t numel;
  DType dtype;
  bool contiguous;
  bool requires_grad = false;
  /// a view, or a view of one, made while gradients were off: has no history and cannot start one
  bool cut_view = false;
  bool inference;                    ///< made in inference mode: has no versions and never enters a graph
  bool wrapped_number = false;       ///< made from a Scalar: only its kind takes part in type promotion
  uint32_t recording = t_recording;  ///< the recording during which it was made; 0: none
  std::atomic<uint32_t> observers{0};
  Layout layout;

  /// The address of the first element. Computed as an integer: an empty tensor may have any offset, and no memory, for
  /// which pointer arithmetic would be undefined.
  void* data() const {
    const uintptr_t first = reinterpret_cast<uintptr_t>(storage->data());
    return reinterpret_cast<void*>(first + static_cast<uintptr_t>(offset) * static_cast<uintptr_t>(size_of(dtype)));
  }
  /// The number of owners without observers (trace/captured.h).
  uint32_t users() const { return owners() - observers.load(std::memory_order_acquire); }
  void destroy() { delete this; }
};

}  // namespace lorry::detail
