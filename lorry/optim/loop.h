#pragma once

// The `loop` execution: a rule with tensors as its values, one operator call for each operation of the formula.

#include <cmath>

#include "lorry/formula/optimizers.h"
#include "lorry/optim/stored.h"

namespace lorry::optim {

/// The type that a formula is computed in on this thread while this lives: constants are rounded to it, as a kernel rounds them.
class ComputedIn {
 public:
  explicit ComputedIn(DType dtype) : outer_(t_dtype) { t_dtype = dtype; }
  ~ComputedIn() { t_dtype = outer_; }
  ComputedIn(const ComputedIn&) = delete;
  ComputedIn& operator=(const ComputedIn&) = delete;

  static DType dtype() { return t_dtype; }
  /// Of numbers in that type, + - * / and square roots are rounded once: a double has more than twice the bits of a float.
  static double rounded(double x) { return t_dtype == kF32 ? static_cast<float>(x) : x; }

 private:
  static inline constinit thread_local DType t_dtype = kF64;
  DType outer_;
};

/// A tensor, or a number, as the value type of an optimizer's formula.
class Value {
 public:
  Value() = default;
  explicit Value(Tensor x) : x_(std::move(x)) {}
  explicit Value(double number) : number_(ComputedIn::rounded(number)) {}
  /// A number becomes a tensor without sizes, in the type of computation, beside `like`.
  Tensor tensor(const Tensor& like) const;
  /// As an operator's argument.
  template <class A>
  A argument() const {
    return x_.defined() ? A(x_) : A(number_);
  }

#define LORRY_VALUE_BINARY(symbol, name)                                                         \
  friend Value operator symbol(const Value& a, const Value& b) {                                 \
    if (!a.x_.defined() && !b.x_.defined()) return Value(double(a.number_ symbol b.number_));    \
    return Value(a.x_.defined() ? a.x_.name(b.argument<Operand>()) : a.tensor(b.x_).name(b.x_)); \
  }
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
#undef LORRY_VALUE_BINARY
  friend Value operator&(const Value& a, const Value& b) {
    if (!a.x_.defined()) return a.number_ != 0 ? b : a;
    if (!b.x_.defined()) return b.number_ != 0 ? a : b;
    return Value(a.x_.logical_and(b.x_));
  }
  friend Value operator|(const Value& a, const Value& b) {
    if (!a.x_.defined()) return a.number_ != 0 ? a : b;
    if (!b.x_.defined()) return b.number_ != 0 ? b : a;
    return Value(a.x_.logical_or(b.x_));
  }
  friend Value operator-(const Value& a) { return a.x_.defined() ? Value(a.x_.neg()) : Value(-a.number_); }
  friend Value operator!(const Value& a) { return a.x_.defined() ? Value(a.x_.logical_not()) : Value(double(a.number_ == 0)); }
  friend Value sqrt(const Value& a) { return a.x_.defined() ? Value(a.x_.sqrt()) : Value(std::sqrt(a.number_)); }
  friend Value abs(const Value& a) { return a.x_.defined() ? Value(a.x_.abs()) : Value(std::fabs(a.number_)); }
  friend Value select(const Value& mask, const Value& a, const Value& b) {
    if (!mask.x_.defined()) return mask.number_ != 0 ? a : b;
    return Value(a.tensor(mask.x_).where(mask.x_, b.tensor(mask.x_)));
  }

 private:
  Tensor x_;
  double number_ = 0;
};

/// One parameter's step. All tensors are without gaps and laid out alike, but for states in 8 bits; `numbers` holds the clock's
/// hyper-parameters, one after the other, in the type of computation. kept_as tells what `kept` is; kept and grad_factor may be undefined,
/// and a factor of NaN leaves everything as it was.
struct ByOperators {
  Tensor param, grad, kept;
  const Tensor* states;  ///< as they are stored
  Tensor numbers;
  Tensor grad_factor;
  kernels::Kept kept_as = kernels::Kept::nothing;
  bool zero_grads = false;
  Storing storing = {};
  uint32_t number = 0;  ///< the parameter's, in stochastic rounding
};

namespace detail {
/// The values as the formula takes them: parameter or what is kept of it, gradient times factor, and state, in the type of computation.
Tensor wide_parameter(const ByOperators& work);
Tensor wide_gradient(const ByOperators& work);
Tensor wide_state(const ByOperators& work, int k);
/// Adds what comes of a parameter, x, and what is kept of it.
void add_parameter(Writes& writes, const ByOperators& work, const Tensor& x);
/// Writes results back, rounded as the fused kernels round.
void store(const ByOperators& work, const Value& param, const Value* states, int count);
}  // namespace detail

/// settings: of the rule.
template <class Rule>
void step_by_operators(const ByOperators& work, const void* settings) {
  const ComputedIn type(work.param.dtype() == kF64 ? kF64 : kF32);
  formula::ProgressOf<Rule> progress;  // flags are the same at every step
  const auto flags = Rule::advance(progress, *static_cast<const formula::SettingsOf<Rule>*>(settings));
  int64_t next = 0;
  const auto hyper = flags.template map<Value>([&](double) { return Value(work.numbers.select(0, next++)); });
  Value param(detail::wide_parameter(work)), states[Rule::kStates > 0 ? Rule::kStates : 1];
  for (int k = 0; k < Rule::kStates; ++k) states[k] = Value(detail::wide_state(work, k));
  Rule()(param, Value(detail::wide_gradient(work)), states, hyper);
  detail::store(work, param, states, Rule::kStates);
}

}  // namespace lorry::optim
