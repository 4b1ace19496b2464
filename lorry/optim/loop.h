#pragma once

// The `loop` execution: a rule with tensors as its values, one operator call for each operation of the formula.

#include "lorry/formula/optimizers.h"
#include "lorry/kernels/optim.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// A tensor, or a number, as the value type of an optimizer's formula. Numbers are rounded to the dtype of the tensor that they meet, as
/// a kernel rounds its constants.
class Value {
 public:
  Value() = default;
  explicit Value(Tensor x) : x_(std::move(x)) {}
  explicit Value(double number) : number_(number) {}
  const Tensor& tensor() const { return x_; }
  double number() const { return number_; }  ///< where there is no tensor
  /// As an operator's argument.
  template <class A>
  A argument() const {
    return x_.defined() ? A(x_) : A(number_);
  }

#define LORRY_VALUE_BINARY(symbol, name)                                                                      \
  friend Value operator symbol(const Value& a, const Value& b) { return Value(a.like(b).name(b.argument<Operand>())); }
  LORRY_VALUE_BINARY(+, add)
  LORRY_VALUE_BINARY(-, sub)
  LORRY_VALUE_BINARY(*, mul)
  LORRY_VALUE_BINARY(/, div)
  LORRY_VALUE_BINARY(<, lt)
  LORRY_VALUE_BINARY(<=, le)
  LORRY_VALUE_BINARY(>, gt)
  LORRY_VALUE_BINARY(>=, ge)
  LORRY_VALUE_BINARY(==, eq)
  LORRY_VALUE_BINARY(!=, ne)
  LORRY_VALUE_BINARY(&, logical_and)
  LORRY_VALUE_BINARY(|, logical_or)
#undef LORRY_VALUE_BINARY
  friend Value operator-(const Value& a) { return Value(a.x_.neg()); }
  friend Value operator!(const Value& a) { return Value(a.x_.logical_not()); }
  friend Value sqrt(const Value& a) { return Value(a.x_.sqrt()); }
  friend Value abs(const Value& a) { return Value(a.x_.abs()); }
  friend Value select(const Value& mask, const Value& a, const Value& b) {
    const Value& typed = a.x_.defined() ? a : b;
    return Value(a.like(typed).where(mask.x_, b.argument<Operand>()));
  }

 private:
  /// This value as a tensor that can meet `other`.
  Tensor like(const Value& other) const;

  Tensor x_;
  double number_ = 0;
};

/// One parameter's step. All tensors are without gaps and laid out alike; `numbers` holds the clock's hyper-parameters, one after the
/// other, in the type of computation. kept_as tells what `kept` is; kept and grad_factor may be undefined, and a factor of NaN leaves
/// everything as it was.
struct ByOperators {
  Tensor param, grad, kept;
  const Tensor* states;
  Tensor numbers;
  Tensor grad_factor;
  kernels::Kept kept_as = kernels::Kept::nothing;
  bool zero_grads = false;
};

namespace detail {
/// The values as the formula takes them: parameter or what is kept of it, and gradient times factor, both in the type of computation.
Tensor wide_parameter(const ByOperators& work);
Tensor wide_gradient(const ByOperators& work);
/// Writes results back, rounded as the fused kernels round.
void store(const ByOperators& work, const Tensor& param, const Value* states, int count);
}  // namespace detail

/// settings: of the rule.
template <class Rule>
void step_by_operators(const ByOperators& work, const void* settings) {
  formula::ProgressOf<Rule> progress;  // flags are the same at every step
  const auto flags = Rule::advance(progress, *static_cast<const formula::SettingsOf<Rule>*>(settings));
  int64_t next = 0;
  const auto hyper = flags.template map<Value>([&](double) { return Value(work.numbers.select(0, next++)); });
  Value param(detail::wide_parameter(work)), states[Rule::kStates > 0 ? Rule::kStates : 1];
  for (int k = 0; k < Rule::kStates; ++k) states[k] = Value(work.states[k].to(work.param.dtype() == kF64 ? kF64 : kF32));
  Rule()(param, Value(detail::wide_gradient(work)), states, hyper);
  detail::store(work, param.tensor(), states, Rule::kStates);
}

}  // namespace lorry::optim
