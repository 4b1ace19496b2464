#pragma once

// A tensor that a recorded function captured.

#include "lorry/tensor/node.h"
#include "lorry/tensor/tensor.h"

namespace lorry::trace {

/// Holds the tensor without being one of its users: whether others still use it can be asked, and decisions about
/// tensors that nobody else refers to do not count it.
class Captured {
 public:
  explicit Captured(const Tensor& x) : tensor_(x), storage_(x.storage().id()) { node().observers.fetch_add(1); }
  ~Captured() { node().observers.fetch_sub(1); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  const Tensor& tensor() const { return tensor_; }
  bool is(const Tensor& x) const { return tensor_.node() == x.node(); }
  /// Whether somebody else has it: the function may read it again.
  bool is_used() const { return node().users() > 0; }
  bool has_other_memory() const { return tensor_.storage().id() != storage_; }

  bool is_frozen = false;  ///< autograd looked at it when it did not require a gradient, and could have

 private:
  detail::TensorNode& node() const { return *tensor_.node(); }

  const Tensor tensor_;
  const uint64_t storage_;
};

}  // namespace lorry::trace
