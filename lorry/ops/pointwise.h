#pragma once

// The pointwise operators. Each row of formula/pointwise.def gives a function, a method (tensor/tensor.h), an in-place
// method and an out form; below the generated ones stand those with signatures of their own.
//
// All of them promote types and broadcast shapes by PyTorch's rules. In-place and out forms (ops/dispatch/out.h) write
// the given tensor and refuse what it cannot hold: a result of another shape (ShapeError), of a higher kind
// (DTypeError), operands that share only part of its memory (ShapeError). Whole numbers divided by zero are refused
// (ValueError).

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
const Tensor& add_out(const Tensor& out, const Tensor& x, const Operand& y, const Scalar& alpha);
const Tensor& sub_out(const Tensor& out, const Tensor& x, const Operand& y, const Scalar& alpha);
const Tensor& div_out(const Tensor& out, const Tensor& x, const Operand& y, std::string_view rounding_mode);

/// To `decimals` digits behind the point, or with a negative number to tens, hundreds, ...: round(x 10^decimals) /
/// 10^decimals, each of the three steps rounded to x's dtype. Floating input.
Tensor round(const Tensor& x, int64_t decimals);
const Tensor& round_out(const Tensor& out, const Tensor& x, int64_t decimals);

/// x where the condition (bool) holds, else y.
Tensor where(const Tensor& condition, const Operand& x, const Operand& y);
const Tensor& where_out(const Tensor& out, const Tensor& condition, const Operand& x, const Operand& y);
/// `value` where the mask (bool) holds, else x; of x's dtype. `value` is a number or a 0-d tensor.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);

/// Between the bounds, of which one may be missing; bounds may be tensors. A NaN stays, and low > high gives high.
Tensor clamp(const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max = {});
const Tensor& clamp_out(const Tensor& out, const Tensor& x, const std::optional<Operand>& min,
                        const std::optional<Operand>& max = {});
/// start + weight (end - start).
Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight);
const Tensor& lerp_out(const Tensor& out, const Tensor& start, const Tensor& end, const Operand& weight);
/// x + value a b, and x + value a / b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
const Tensor& addcmul_out(const Tensor& out, const Tensor& x, const Tensor& a, const Tensor& b,
                          const Scalar& value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
const Tensor& addcdiv_out(const Tensor& out, const Tensor& x, const Tensor& a, const Tensor& b,
                          const Scalar& value = 1);

/// approximate: "none" (the error function) or "tanh". Throws ValueError for another.
Tensor gelu(const Tensor& x, std::string_view approximate);
Tensor leaky_relu(const Tensor& x, const Scalar& negative_slope = 0.01);
const Tensor& leaky_relu_(const Tensor& x, const Scalar& negative_slope = 0.01);
const Tensor& leaky_relu_out(const Tensor& out, const Tensor& x, const Scalar& negative_slope = 0.01);
Tensor elu(const Tensor& x, const Scalar& alpha = 1.0);
const Tensor& elu_(const Tensor& x, const Scalar& alpha = 1.0);
const Tensor& elu_out(const Tensor& out, const Tensor& x, const Scalar& alpha = 1.0);
/// log(1 + exp(beta x)) / beta; x itself where beta x > threshold.
Tensor softplus(const Tensor& x, const Scalar& beta = 1.0, const Scalar& threshold = 20.0);
const Tensor& softplus_out(const Tensor& out, const Tensor& x, const Scalar& beta = 1.0,
                           const Scalar& threshold = 20.0);
/// NaN becomes `nan`; infinities become the given numbers, or the largest and smallest of x's dtype.
Tensor nan_to_num(const Tensor& x, double nan = 0.0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
const Tensor& nan_to_num_out(const Tensor& out, const Tensor& x, double nan = 0.0, std::optional<double> posinf = {},
                             std::optional<double> neginf = {});

/// Where |x - y| <= atol + rtol |y|, or both are the same infinity, or with equal_nan both are NaN. Throws DTypeError
/// for unlike types.
Tensor isclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// Whether that holds everywhere.
bool allclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// Whether sizes and all elements are equal. Throws DTypeError for unlike types.
bool equal(const Tensor& x, const Tensor& y);

#define LORRY_INFIX(symbol, function)                                                         \
  inline Tensor operator symbol(const Tensor& x, const Operand& y) { return function(x, y); } \
  inline Tensor operator symbol(const Scalar& x, const Tensor& y) { return function(x, y); }
LORRY_INFIX(+, add)
LORRY_INFIX(-, sub)
LORRY_INFIX(*, mul)
LORRY_INFIX(/, div)
LORRY_INFIX(%, remainder)
LORRY_INFIX(&, bitwise_and)
LORRY_INFIX(|, bitwise_or)
LORRY_INFIX(^, bitwise_xor)
LORRY_INFIX(<<, bitwise_left_shift)
LORRY_INFIX(>>, bitwise_right_shift)
#undef LORRY_INFIX

// Comparisons give a tensor of truth values; Tensor::is_same asks for identity and equal() for one answer. Each pair of
// types is written out: C++20 also tries x == y as y == x, so with one Operand for both kinds two tensors would match
// ambiguously.
#define LORRY_COMPARE(symbol, function)                                                      \
  inline Tensor operator symbol(const Tensor& x, const Tensor& y) { return function(x, y); } \
  inline Tensor operator symbol(const Tensor& x, const Scalar& y) { return function(x, y); } \
  inline Tensor operator symbol(const Scalar& x, const Tensor& y) { return function(x, y); }
LORRY_COMPARE(==, eq)
LORRY_COMPARE(!=, ne)
LORRY_COMPARE(<, lt)
LORRY_COMPARE(<=, le)
LORRY_COMPARE(>, gt)
LORRY_COMPARE(>=, ge)
#undef LORRY_COMPARE

}  // namespace lorry
