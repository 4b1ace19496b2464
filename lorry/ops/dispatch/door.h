#pragma once

// The door: every primitive operator call passes here. If nobody listens, the door costs one test of the mode word and
// of the inputs' requires_grad. Behind that test autograd, tracing and profiling hear of the call.
//
//   Tensor silu(const Tensor& x) { return door::call(Op::silu, {&x}, [&] { ...allocate, launch, return... }); }
//
// Invariant: nobody listens inside `compute`, so an operator may call other operators and is still one call.

#include <array>
#include <exception>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

/// The inputs of a call: a braced list, or a list of tensors (cat, stack).
class Inputs {
 public:
  /// Refers to the braced list, which lives until the end of the call's full expression.
  Inputs(std::initializer_list<Input> list) : size_(list.size()) {
    const Input* first = list.begin();
    list_ = first;
  }
  Inputs(std::span<const Input> list) : list_(list.data()), size_(list.size()) {}
  Inputs(std::span<const Tensor> tensors) : tensors_(tensors.data()), size_(tensors.size()) {}
  Inputs(const std::vector<Tensor>& tensors) : Inputs(std::span<const Tensor>(tensors)) {}

  size_t size() const { return size_; }
  bool requires_grad() const {
    for (size_t i = 0; i < size_; ++i)
      if (tensors_ ? tensors_[i].requires_grad() : list_[i].requires_grad()) return true;
    return false;
  }
  Input operator[](size_t i) const { return tensors_ ? Input(&tensors_[i]) : list_[i]; }

 private:
  const Input* list_ = nullptr;
  const Tensor* tensors_ = nullptr;
  size_t size_;
};

// ---- the slow side --------------------------------------------------------------------------------------------------

/// Takes all announced results of the next call of an operator on this thread (run.h).
class RunCapture {
 public:
  explicit RunCapture(Op op);
  ~RunCapture();
  RunCapture(const RunCapture&) = delete;
  RunCapture& operator=(const RunCapture&) = delete;
  Op op() const { return op_; }
  void take(std::span<const Tensor> outputs);
  /// Empty if the operator was not called.
  std::optional<std::vector<Tensor>>& outputs() { return outputs_; }

 private:
  Op op_;
  std::optional<std::vector<Tensor>> outputs_;
  RunCapture* outer_;
  ModeScope mode_;
};

/// Announces a call to the listeners and silences them until it ends. It refers to its arguments, which outlive it: the
/// attributes, `self`, and the tensors and numbers of `inputs`.
class Announced {
 public:
  Announced(Op op, bool in_place, const Inputs& inputs, const Tensor* self, std::span<const Attribute> attributes,
            RunCall run = nullptr);
  /// For a call that writes `out`, its outputs. In place they are the first inputs too.
  Announced(Op op, bool in_place, const Inputs& inputs, std::span<const Tensor> out,
            std::span<const Attribute> attributes, RunCall run = nullptr);
  ~Announced();
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  void finish(const Tensor& output) { finish(std::span(&output, 1)); }
  void finish(std::span<const Tensor> outputs);
  /// For a call whose outputs were given.
  void finish() { finish(call_.outputs); }
  /// Whether a listener has made the call in the operator's place.
  bool replaced() const { return replaced_; }
  /// For a replaced call: finishes it, and returns what the operator would.
  template <class Result>
  Result finish_replaced();

 private:
  static constexpr int kFew = 8;
  struct Notified {
    const Listener* listener;
    void* note;
  };
  void list_inputs(const Inputs& inputs, const Tensor* self);
  void notify_begin();
  /// Notifies those who were notified of the call of its end. Returns the first error that they throw.
  std::exception_ptr notify_end() noexcept;

  Input few_[kFew];
  std::vector<Input> many_;  ///< if there are more inputs
  CallView call_;
  Notified notified_[kListeners];
  int notified_count_ = 0;
  bool replaced_ = false;
  std::vector<Tensor> made_;  ///< the outputs, if it is replaced
  RunCapture* capture_ = nullptr;
  uint32_t modes_;
};

template <class Result>
Result Announced::finish_replaced() {
  finish(made_);
  if constexpr (std::is_same_v<Result, Tensor>) {
    return std::move(made_.at(0));
  } else {
    Result result;
    for (size_t i = 0; i < result.size(); ++i) result[i] = std::move(made_.at(i));
    return result;
  }
}

inline bool heard(const Inputs& inputs) {
  const uint32_t modes = t_modes;
  if (modes & kListenerModes & ~kGradMode) [[unlikely]]
    return true;
  return (modes & kGradMode) && inputs.requires_grad();
}

/// An attribute, or the result of a function that makes it. Called only if somebody listens.
template <class A>
Attribute attribute(const A& a) {
  if constexpr (std::is_invocable_v<const A&>) {
    return Attribute(a());
  } else {
    return Attribute(a);
  }
}

// Calls that somebody hears are out of line, so that the others stay small.

template <class Compute, class... A>
[[gnu::noinline, gnu::cold]] auto announced_call(Op op, const Inputs& inputs, Compute& compute,
                                                 const A&... attributes) {
  const std::array<Attribute, sizeof...(A)> list{attribute(attributes)...};
  Announced announced(op, false, inputs, nullptr, list);
  if (announced.replaced()) return announced.finish_replaced<decltype(compute())>();
  auto result = compute();
  announced.finish(result);
  return result;
}

template <class Compute, class... A>
[[gnu::noinline, gnu::cold]] void announced_call_in_place(Op op, const Tensor& self, const Inputs& others,
                                                          Compute& compute, const A&... attributes) {
  const std::array<Attribute, sizeof...(A)> list{attribute(attributes)...};
  Announced announced(op, true, others, &self, list);
  if (!announced.replaced()) compute();
  self.node()->storage->written_by(t_operator);
  announced.finish(self);
}

template <class... A>
[[gnu::noinline, gnu::cold]] void announced_view(Op op, const Tensor& base, const Tensor& result,
                                                 const A&... attributes) {
  const std::array<Attribute, sizeof...(A)> list{attribute(attributes)...};
  Announced announced(op, false, {&base}, nullptr, list);
  announced.finish(result);
}

// ---- the ways in ----------------------------------------------------------------------------------------------------

/// A call that makes new tensors. compute() returns a Tensor, or std::array<Tensor, N>.
template <class Compute, class... A>
auto call(Op op, const Inputs& inputs, Compute&& compute, const A&... attributes) {
  const Running running(name(op));
  if (!heard(inputs)) [[likely]]
    return compute();
  return announced_call(op, inputs, compute, attributes...);
}

/// Refuses an inference tensor outside inference mode.
void require_not_inference(const Tensor& self);
/// Refuses to write a read-only storage, an inference tensor outside inference mode, or a tensor whose elements
/// overlap. Part of call_in_place; out= operators call it on their result.
void require_writable(const Tensor& self);

/// A call that writes `self`, which becomes input 0 of the recorded call. compute() returns nothing.
template <class Compute, class... A>
const Tensor& call_in_place(Op op, const Tensor& self, const Inputs& others, Compute&& compute,
                            const A&... attributes) {
  const Running running(name(op));
  require_writable(self);
  if (!(self.requires_grad() && (t_modes & kGradMode)) && !heard(others)) [[likely]] {
    compute();
    self.node()->storage->written_by(t_operator);
    return self;
  }
  announced_call_in_place(op, self, others, compute, attributes...);
  return self;
}

/// A call that computes into given tensors: an out= form, or a list in place, whose entries are the first of `inputs`.
/// The caller has checked that they may be written. compute() returns nothing. kRun: CallView::run, for calls over
/// lists.
template <RunCall kRun = nullptr, class Compute, class... A>
void call_into(Op op, bool in_place, std::span<const Tensor> out, const Inputs& inputs, Compute&& compute,
               const A&... attributes) {
  const Running running(name(op));
  const auto written = [&] {
    for (const Tensor& x : out) x.node()->storage->written_by(t_operator);
  };
  if (!heard(inputs)) [[likely]] {
    compute();
    return written();
  }
  const std::array<Attribute, sizeof...(A)> list{attribute(attributes)...};
  Announced announced(op, in_place, inputs, out, list, kRun);
  if (!announced.replaced()) compute();
  written();
  announced.finish();
}

/// A view: same storage and dtype, another layout. `offset` counts elements from the start of the storage.
Tensor make_view(const Tensor& base, const Layout& layout, int64_t offset);

/// Turns a view of a temporary into a tensor that is no view. Only for memory that nothing else refers to: results that
/// an operator computes in another layout than it returns.
Tensor owning(Tensor view);

template <class... A>
Tensor view(Op op, const Tensor& base, const Layout& layout, int64_t offset, const A&... attributes) {
  Tensor result = make_view(base, layout, offset);
  if (heard({&base})) [[unlikely]]
    announced_view(op, base, result, attributes...);
  return result;
}

}  // namespace lorry::door
