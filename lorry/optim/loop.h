#pragma once

// The `loop` execution: a rule with tensors as its values, one operator call for each operation of the formula.

#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// A tensor as the value type of an optimizer's formula. Numbers stand on either side of an operator and are rounded to the
/// tensor's dtype, as a kernel rounds its hyper-parameters.
class Value {
 public:
  Value() = default;
  explicit Value(Tensor x) : x_(std::move(x)) {}
  const Tensor& tensor() const { return x_; }

  friend Value operator+(const Value& a, const Value& b) { return Value(a.x_.add(b.x_)); }
  friend Value operator-(const Value& a, const Value& b) { return Value(a.x_.sub(b.x_)); }
  friend Value operator*(const Value& a, const Value& b) { return Value(a.x_.mul(b.x_)); }
  friend Value operator/(const Value& a, const Value& b) { return Value(a.x_.div(b.x_)); }
  friend Value operator+(const Value& a, double b) { return Value(a.x_.add(b)); }
  friend Value operator*(const Value& a, double b) { return Value(a.x_.mul(b)); }
  friend Value operator*(double a, const Value& b) { return b * a; }
  friend Value operator-(const Value& a) { return Value(a.x_.neg()); }
  friend Value operator>(const Value& a, const Value& b) { return Value(a.x_.gt(b.x_)); }
  friend Value operator!=(const Value& a, const Value& b) { return Value(a.x_.ne(b.x_)); }
  friend Value operator|(const Value& a, const Value& b) { return Value(a.x_.logical_or(b.x_)); }
  friend Value sqrt(const Value& a) { return Value(a.x_.sqrt()); }
  friend Value select(const Value& mask, const Value& a, const Value& b) { return Value(a.x_.where(mask.x_, b.x_)); }

 private:
  Tensor x_;
};

/// Steps one parameter. 16-bit parameters are widened to f32, or their master is taken, and rounded when they are stored, as the fused
/// kernel does. master and grad_factor may be undefined; a grad_factor of NaN leaves everything as it was.
template <class Rule, class Hyper>
void step_by_operators(const Tensor& param, const Tensor& master, const Tensor& grad, const Tensor* states, const Hyper& hyper, const Tensor& grad_factor) {
  const DType dtype = param.dtype() == kF64 ? kF64 : kF32;
  Tensor wide_grad = grad.to(dtype), steps;
  if (grad_factor.defined()) {
    wide_grad = wide_grad.mul(grad_factor.to(dtype));
    steps = grad_factor.eq(grad_factor);
  }
  const auto store = [&](const Tensor& to, const Value& x) { to.copy_(steps.defined() ? x.tensor().where(steps, to.to(dtype)) : x.tensor()); };
  Value p(master.defined() ? master : param.to(dtype)), s[3];
  for (int k = 0; k < Rule::kStates; ++k) s[k] = Value(states[k]);
  Rule()(p, Value(wide_grad), s, hyper);
  store(param, p);
  if (master.defined()) store(master, p);
  for (int k = 0; k < Rule::kStates; ++k) store(states[k], s[k]);
}

}  // namespace lorry::optim
