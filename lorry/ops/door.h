#pragma once

// The door: every primitive operator call passes here. With nobody listening it costs one test of the mode word and of its
// inputs' requires_grad; autograd, tracing and profiling hear of a call only behind that test.
//
//   Tensor silu(const Tensor& x) { return door::call(Op::silu, {&x}, [&] { ...allocate, launch, return... }); }
//
// Invariant: inside `compute` nothing listens, so an operator may be written with other operators and is still one call.

#include <array>
#include <initializer_list>
#include <memory>
#include <variant>
#include <vector>

#include "lorry/base/modes.h"
#include "lorry/ops/table.h"
#include "lorry/tensor/tensor.h"

namespace lorry::door {

/// A non-tensor argument, kept for the rules.
using Attribute = std::variant<bool, int64_t, double, Scalar, Dims, DType, std::vector<int64_t>>;

/// One argument: a tensor (perhaps undefined) or a number.
class Input {
 public:
  Input(const Tensor* t) : tensor_(t) {}
  Input(const Operand& o) : tensor_(o.tensor()), scalar_(o.tensor() ? nullptr : &o.scalar()) {}
  Input(const Operand* o) : Input(*o) {}

  bool requires_grad() const { return tensor_ != nullptr && tensor_->requires_grad(); }
  /// The tensor itself, or a 0-d tensor that stands for the number.
  Tensor materialise() const;

 private:
  const Tensor* tensor_;
  const Scalar* scalar_ = nullptr;
};

/// The arguments of a call: a braced list, or a list of tensors (cat, stack).
class Inputs {
 public:
  /// Refers to the braced list, which lives until the end of the call's full expression.
  Inputs(std::initializer_list<Input> list) : size_(list.size()) {
    const Input* first = list.begin();
    list_ = first;
  }
  Inputs(std::span<const Tensor> tensors) : tensors_(tensors.data()), size_(tensors.size()) {}
  Inputs(const std::vector<Tensor>& tensors) : Inputs(std::span<const Tensor>(tensors)) {}

  size_t size() const { return size_; }
  bool requires_grad() const {
    for (size_t i = 0; i < size_; ++i)
      if (tensors_ ? tensors_[i].requires_grad() : list_[i].requires_grad()) return true;
    return false;
  }
  Tensor materialise(size_t i) const { return tensors_ ? tensors_[i] : list_[i].materialise(); }

 private:
  const Input* list_ = nullptr;
  const Tensor* tensors_ = nullptr;
  size_t size_;
};

/// What a listener sees of a call.
struct Call {
  Op op{};
  bool in_place = false;  ///< inputs[0] is written and is also outputs[0]
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  ///< filled between before and after
  std::vector<Attribute> attributes;
  std::shared_ptr<void> note;  ///< what `before` left for `after`
};

/// A room that listens. `before` may refuse the call by throwing; `after` is not called when the operator threw.
struct Listener {
  void (*before)(Call&) = nullptr;
  void (*after)(Call&) = nullptr;
  /// The name of the operator that made a tensor which requires a gradient; null for a leaf.
  const char* (*made_by)(const Tensor&) = nullptr;
};

/// The gradient recorder: installed by the autograd room when the first tensor asks for a gradient.
void set_recorder(const Listener* recorder);
/// What the recorder knows of a tensor: the operator that made it; null for a leaf, and for what needs no gradient.
const char* made_by(const Tensor& x);

// ---- the slow side ---------------------------------------------------------------------------------------------------

/// Announces a call to the listeners and silences them until it ends.
class Announced {
 public:
  Announced(Op op, bool in_place, const Inputs& inputs, const Tensor* self, std::vector<Attribute> attributes);
  ~Announced();
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  void finish(const Tensor& output) { finish(&output, 1); }
  template <size_t N>
  void finish(const std::array<Tensor, N>& outputs) {
    finish(outputs.data(), N);
  }
  void finish(const Tensor* outputs, size_t count);

 private:
  Call call_;
  uint32_t modes_;
};

inline bool heard(const Inputs& inputs) {
  const uint32_t modes = t_modes;
  if (modes & (kTraceMode | kProfileMode)) [[unlikely]] return true;
  return (modes & kGradMode) && inputs.requires_grad();
}

// ---- the three ways in -----------------------------------------------------------------------------------------------

/// A call that makes new tensors. compute() returns a Tensor, or std::array<Tensor, N>.
template <class Compute, class... A>
auto call(Op op, const Inputs& inputs, Compute&& compute, const A&... attributes) {
  const Running running(name(op));
  if (!heard(inputs)) [[likely]] return compute();
  Announced announced(op, false, inputs, nullptr, {Attribute(attributes)...});
  auto result = compute();
  announced.finish(result);
  return result;
}

/// Refuses an inference tensor outside inference mode.
void require_not_inference(const Tensor& self);
/// Refuses writes that may not be: to a read-only storage, to an inference tensor outside inference mode, to overlapping
/// elements. Part of call_in_place; out= operators call it on their result.
void require_writable(const Tensor& self);

/// A call that writes `self`, which becomes input 0 of the recorded call. compute() returns nothing.
template <class Compute, class... A>
const Tensor& call_in_place(Op op, const Tensor& self, const Inputs& others, Compute&& compute, const A&... attributes) {
  const Running running(name(op));
  require_writable(self);
  if (!(self.requires_grad() && (t_modes & kGradMode)) && !heard(others)) [[likely]] {
    compute();
    self.storage().written_by(t_operator);
    return self;
  }
  Announced announced(op, true, others, &self, {Attribute(attributes)...});
  compute();
  self.storage().written_by(t_operator);
  announced.finish(self);
  return self;
}

/// A view: same storage and dtype, another layout. `offset` counts elements from the start of the storage.
Tensor make_view(const Tensor& base, const Layout& layout, int64_t offset);

/// Turns a view of a temporary into a tensor of its own, which is no view. Only for memory that nothing else refers to:
/// results that an operator computes in another layout than it returns.
Tensor owning(Tensor view);

template <class... A>
Tensor view(Op op, const Tensor& base, const Layout& layout, int64_t offset, const A&... attributes) {
  Tensor result = make_view(base, layout, offset);
  if (heard({&base})) [[unlikely]] {
    Announced announced(op, false, {&base}, nullptr, {Attribute(attributes)...});
    announced.finish(result);
  }
  return result;
}

}  // namespace lorry::door
