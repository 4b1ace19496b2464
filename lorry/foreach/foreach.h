#pragma once

// Operators over lists of tensors: PyTorch's _foreach_ family and more. Each UNARY and BINARY row of
// formula/pointwise.def gives foreach::name and foreach::name_; operators of more operands are declared below; apply
// and apply_ take any row. Each tensor gets what its operator alone would give it, to the bit: the same promotion of
// types, the same checks, the same errors. Tensors of one list may have any sizes, dtypes and devices. Each combination
// of dtypes on a device is one launch (StrategyScope says how).
//
//   foreach::add_(params, grads, -lr);               foreach::mul(x, std::vector<double>{1, 2, 3});
//   foreach::apply(Pointwise::gelu, {activations});  foreach::sub(1, x);
//
// If the tensors of an entry are not dense or differ in layout (broadcast ones, slices), the operator itself computes
// that entry: one launch, without a copy. If gradients are recorded, it computes every entry. In place, entries are
// computed in no order, so an entry must not share memory with what another one writes (ShapeError).

#include <initializer_list>

#include "lorry/foreach/argument.h"
#include "lorry/formula/pointwise.h"

namespace lorry::foreach {

/// Any row of formula/pointwise.def. All lists have one length (ValueError).
TensorList apply(Pointwise op, std::initializer_list<Argument> arguments);
/// The same, written to `self`, the row's first operand.
const TensorList& apply_(Pointwise op, const TensorList& self, std::initializer_list<Argument> others);

#define LORRY_UNARY(name, Formula, result, domain) \
  TensorList name(const TensorList& x);            \
  const TensorList& name##_(const TensorList& x);
#define LORRY_BINARY(name, Formula, result, domain)        \
  TensorList name(const TensorList& x, const Argument& y); \
  TensorList name(const Scalar& x, const TensorList& y);   \
  const TensorList& name##_(const TensorList& x, const Argument& y);
#include "lorry/formula/pointwise.def"

/// x + alpha y and x - alpha y.
TensorList add(const TensorList& x, const Argument& y, const Scalar& alpha);
TensorList sub(const TensorList& x, const Argument& y, const Scalar& alpha);
const TensorList& add_(const TensorList& x, const Argument& y, const Scalar& alpha);
const TensorList& sub_(const TensorList& x, const Argument& y, const Scalar& alpha);
/// x where the condition (bool) holds, else y.
TensorList where(const TensorList& condition, const Argument& x, const Argument& y);
TensorList clamp(const TensorList& x, const Argument& low, const Argument& high);
const TensorList& clamp_(const TensorList& x, const Argument& low, const Argument& high);
/// start + weight (end - start).
TensorList lerp(const TensorList& start, const TensorList& end, const Argument& weight);
const TensorList& lerp_(const TensorList& start, const TensorList& end, const Argument& weight);
/// x + value a b, and x + value a / b.
TensorList addcmul(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value = 1);
TensorList addcdiv(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value = 1);
const TensorList& addcmul_(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value = 1);
const TensorList& addcdiv_(const TensorList& x, const TensorList& a, const TensorList& b, const Argument& value = 1);

/// Each tensor of `source` to that of `self`, converted and broadcast as by Tensor::copy_.
const TensorList& copy_(const TensorList& self, const TensorList& source);
const TensorList& fill_(const TensorList& self, const Scalar& value);
const TensorList& zero_(const TensorList& self);
/// Converted; a tensor of that dtype is itself.
TensorList to(const TensorList& x, DType dtype);

}  // namespace lorry::foreach
