#pragma once

// The pointwise operators. Each row of formula/pointwise.def gives a function, a method (tensor/tensor.h), an in-place method and an
// out form; below the generated ones stand those with signatures of their own.
//
// All of them promote types and broadcast shapes by PyTorch's rules. In-place and out forms write the given tensor and refuse what it
// cannot hold: a result of another shape (ShapeError), of a higher kind (DTypeError), operands that share only part of its memory
// (ShapeError). Whole numbers divided by zero are refused (ValueError).

#include <optional>
#include <string_view>

#include "lorry/tensor/tensor.h"

namespace lorry {

#define LORRY_UNARY(name, Formula, result, domain) \
  Tensor name(const Tensor& x);                    \
  const Tensor& name##_out(const Tensor& out, const Tensor& x);
#define LORRY_BINARY(name, Formula, result, domain) \
  Tensor name(const Tensor& x, const Operand& y);   \
  Tensor name(const Scalar& x, const Tensor& y);    \
  const Tensor& name##_out(const Tensor& out, const Operand& x, const Operand& y);
#include "lorry/formula/pointwise.def"

/// x + alpha y and x - alpha y. A floating alpha needs floating operands.
Tensor add(const Tensor& x, const Operand& y, const Scalar& alpha);
Tensor sub(const Tensor& x, const Operand& y, const Scalar& alpha);
/// The quotient rounded by `rounding_mode`, "floor" or "trunc". Throws ValueError for another.
Tensor div(const Tensor& x, const Operand& y, std::string_view rounding_mode);
Tensor true_divide(const Tensor& x, const Operand& y);

/// x where the condition (bool) holds, else y.
Tensor where(const Tensor& condition, const Operand& x, const Operand& y);
const Tensor& where_out(const Tensor& out, const Tensor& condition, const Operand& x, const Operand& y);
/// `value` where the mask (bool) holds, else x; of x's dtype. `value` is a number or a 0-d tensor.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);

/// Between the bounds, of which one may be missing; bounds may be tensors. A NaN stays, and low > high gives high.
Tensor clamp(const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max = {});
const Tensor& clamp_out(const Tensor& out, const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max = {});
/// start + weight (end - start).
Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight);
const Tensor& lerp_out(const Tensor& out, const Tensor& start, const Tensor& end, const Operand& weight);
/// x + value a b, and x + value a / b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
const Tensor& addcmul_out(const Tensor& out, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
const Tensor& addcdiv_out(const Tensor& out, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);

/// approximate: "none" (the error function) or "tanh". Throws ValueError for another.
Tensor gelu(const Tensor& x, std::string_view approximate);
Tensor leaky_relu(const Tensor& x, const Scalar& negative_slope = 0.01);
Tensor elu(const Tensor& x, const Scalar& alpha = 1.0);
/// log(1 + exp(beta x)) / beta; x itself where beta x > threshold.
Tensor softplus(const Tensor& x, const Scalar& beta = 1.0, const Scalar& threshold = 20.0);
/// NaN becomes `nan`; infinities become the given numbers, or the largest and smallest of x's dtype.
Tensor nan_to_num(const Tensor& x, double nan = 0.0, std::optional<double> posinf = {}, std::optional<double> neginf = {});

/// grad times the derivative, in one pass over memory. They have no rules: backward rules call them while nothing is recorded.
Tensor sigmoid_backward(const Tensor& grad, const Tensor& output);
Tensor tanh_backward(const Tensor& grad, const Tensor& output);
Tensor relu_backward(const Tensor& grad, const Tensor& output);
Tensor gelu_backward(const Tensor& grad, const Tensor& x);
Tensor gelu_tanh_backward(const Tensor& grad, const Tensor& x);
Tensor silu_backward(const Tensor& grad, const Tensor& x);

inline Tensor operator+(const Tensor& x, const Operand& y) { return add(x, y); }
inline Tensor operator-(const Tensor& x, const Operand& y) { return sub(x, y); }
inline Tensor operator*(const Tensor& x, const Operand& y) { return mul(x, y); }
inline Tensor operator/(const Tensor& x, const Operand& y) { return div(x, y); }
inline Tensor operator+(const Scalar& x, const Tensor& y) { return add(x, y); }
inline Tensor operator-(const Scalar& x, const Tensor& y) { return sub(x, y); }
inline Tensor operator*(const Scalar& x, const Tensor& y) { return mul(x, y); }
inline Tensor operator/(const Scalar& x, const Tensor& y) { return div(x, y); }

}  // namespace lorry
