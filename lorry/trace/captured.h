#pragma once

// Captured: a reference to a tensor that a recorded function has captured.

#include "lorry/tensor/node.h"
#include "lorry/tensor/tensor.h"

namespace lorry::trace {

/// Keeps the tensor alive without counting as a user: is_used() tells whether anybody else refers to it, and decisions
/// about tensors with a single user are not affected.
class Captured {
 public:
  explicit Captured(const Tensor& x)
      : tensor_(x), storage_(x.storage().id()), layout_(x.layout()), offset_(x.storage_offset()), dtype_(x.dtype()) {
    node().observers.fetch_add(1);
  }
  ~Captured() { node().observers.fetch_sub(1); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  const Tensor& tensor() const { return tensor_; }
  bool is(const Tensor& x) const { return tensor_.node() == x.node(); }
  /// Whether anybody else refers to it, so that the function may read it again.
  bool is_used() const { return node().users() > 0; }
  bool has_other_memory() const { return tensor_.storage().id() != storage_ || tensor_.storage_offset() != offset_; }
  /// Whether its elements are arranged differently: t_(), squeeze_(), set_data().
  bool has_other_layout() const { return tensor_.layout() != layout_ || tensor_.dtype() != dtype_; }

  bool is_frozen = false;  ///< autograd tested it when it did not require a gradient but could have

 private:
  detail::TensorNode& node() const { return *tensor_.node(); }

  const Tensor tensor_;
  const uint64_t storage_;
  const Layout layout_;
  const int64_t offset_;
  const DType dtype_;
};

}  // namespace lorry::trace
