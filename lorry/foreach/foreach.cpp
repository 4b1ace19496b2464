#include "lorry/foreach/foreach.h"

#include "lorry/foreach/operator_plan.h"

#include "lorry/ops/array.h"

namespace lorry::foreach {
namespace {

TensorList computed(Op op, std::span<const Argument> arguments, DType to = kF32) {
  std::vector<Tensor> results;
  detail::execute({.op = op, .arguments = arguments, .to = to}, &results);
  return results;
}

const TensorList& written(Op op, const TensorList& self, std::initializer_list<Argument> arguments) {
  detail::execute({.op = op, .arguments = std::span(arguments.begin(), arguments.size()), .in_place = true}, nullptr);
  return self;
}
TensorList computed(Op op, std::initializer_list<Argument> arguments, DType to = kF32) {
  return computed(op, std::span(arguments.begin(), arguments.size()), to);
}

void require_arity(Pointwise op, size_t given) {
  require<ValueError>(given == row(op).arity, "{} operands; expected {}", given, row(op).arity);
}

/// The opposite; that of the least integer wraps, as everywhere.
Scalar negative(const Scalar& x) {
  return x.is_floating() ? Scalar(-x.to<double>())
                         : Scalar(static_cast<int64_t>(-static_cast<uint64_t>(x.to<int64_t>())));
}

}  // namespace

TensorList apply(Pointwise op, std::initializer_list<Argument> arguments) {
  const Running running(row(op).name);
  require_arity(op, arguments.size());
  return computed(static_cast<Op>(op), arguments);
}

const TensorList& apply_(Pointwise op, const TensorList& self, std::initializer_list<Argument> others) {
  const Running running(row(op).name);
  require_arity(op, 1 + others.size());
  std::vector<Argument> arguments{self};
  arguments.insert(arguments.end(), others.begin(), others.end());
  detail::execute({.op = static_cast<Op>(op), .arguments = arguments, .in_place = true}, nullptr);
  return self;
}

#define LORRY_UNARY(name, Formula, result, domain)                         \
  TensorList name(const TensorList& x) { return computed(Op::name, {x}); } \
  const TensorList& name##_(const TensorList& x) { return written(Op::name, x, {x}); }
#define LORRY_BINARY(name, Formula, result, domain)                                              \
  TensorList name(const TensorList& x, const Argument& y) { return computed(Op::name, {x, y}); } \
  TensorList name(const Scalar& x, const TensorList& y) { return computed(Op::name, {x, y}); }   \
  const TensorList& name##_(const TensorList& x, const Argument& y) { return written(Op::name, x, {x, y}); }
#include "lorry/formula/pointwise.def"

TensorList add(const TensorList& x, const Argument& y, const Scalar& alpha) {
  const Running running("add");
  return computed(Op::add_scaled, {x, y, alpha});
}
TensorList sub(const TensorList& x, const Argument& y, const Scalar& alpha) {
  const Running running("sub");
  return computed(Op::add_scaled, {x, y, negative(alpha)});
}
const TensorList& add_(const TensorList& x, const Argument& y, const Scalar& alpha) {
  const Running running("add");
  return written(Op::add_scaled, x, {x, y, alpha});
}
const TensorList& sub_(const TensorList& x, const Argument& y, const Scalar& alpha) {
  const Running running("sub");
  return written(Op::add_scaled, x, {x, y, negative(alpha)});
}

TensorList where(const TensorList& condition, const Argument& x, const Argument& y) {
  return computed(Op::where, {condition, x, y});
}
TensorList clamp(const TensorList& x, const Argument& low, const Argument& high) {
  return computed(Op::clamp, {x, low, high});
}
const TensorList& clamp_(const TensorList& x, const Argument& low, const Argument& high) {
  return written(Op::clamp, x, {x, low, high});
}
TensorList lerp(const TensorList& start, const TensorList& end, const Argument& weight) {
  return computed(Op::lerp, {start, end, weight});
}
const TensorList& lerp_(const TensorList& start, const TensorList& end, const Argument& weight) {
  return written(Op::lerp, start, {start, end, weight});
}
TensorList addcmul(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value) {
  return computed(Op::addcmul, {x, a, b, value});
}
TensorList addcdiv(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value) {
  return computed(Op::addcdiv, {x, a, b, value});
}
const TensorList& addcmul_(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value) {
  return written(Op::addcmul, x, {x, a, b, value});
}
const TensorList& addcdiv_(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value) {
  return written(Op::addcdiv, x, {x, a, b, value});
}

const TensorList& copy_(const TensorList& self, const TensorList& source) {
  return written(Op::copy, self, {self, source});
}
const TensorList& fill_(const TensorList& self, const Scalar& value) { return written(Op::fill, self, {self, value}); }
const TensorList& zero_(const TensorList& self) {
  const Running running("zero");
  return fill_(self, 0);
}
TensorList to(const TensorList& x, DType dtype) {
  const Running running("to");
  require_dtype(dtype);
  return computed(Op::cast, {x}, dtype);
}

}  // namespace lorry::foreach
