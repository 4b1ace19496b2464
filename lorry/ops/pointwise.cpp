#include "lorry/ops/pointwise.h"

#include <cmath>
#include <limits>

#include "lorry/ops/array.h"
#include "lorry/ops/copy.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/pointwise_call.h"

namespace lorry {
namespace {

/// A call that makes a new tensor.
template <class... Operands>
Tensor compute(Op op, const Operands&... given) {
  const Operand operands[] = {Operand(given)...};
  return door::call(op, {door::Input(Operand(given))...}, [&] { return ops::pointwise(op, operands); });
}

/// A call that writes its first operand.
template <class... Operands>
const Tensor& compute_in_place(Op op, const Tensor& self, const Operands&... others) {
  const Running running(name(op));
  require_defined(self, "self");
  const Operand operands[] = {Operand(self), Operand(others)...};
  return door::call_in_place(op, self, {door::Input(Operand(others))...},
                             [&] { ops::pointwise_into(op, self, operands); });
}

/// The out= form (ops/dispatch/out.h).
template <class... Operands>
const Tensor& compute_out(Op op, const Tensor& out, const Operands&... given) {
  const Running running(name(op));
  require_defined(out, "out");
  const Operand operands[] = {Operand(given)...};
  bool differentiable = false;
  for (const Operand& x : operands) differentiable |= x.tensor() != nullptr && x.tensor()->requires_grad();
  require_no_gradient(out, differentiable);
  door::require_writable(out);
  door::call_into(op, false, std::span(&out, 1), {door::Input(Operand(given))...},
                  [&] { ops::pointwise_out(op, out, operands); });
  return out;
}

Op rounded_division(std::string_view mode) {
  require<ValueError>(mode == "floor" || mode == "trunc", "unknown rounding mode; got '{}'; expected floor or trunc",
                      mode);
  return mode == "floor" ? Op::floor_divide : Op::trunc_divide;
}

/// The largest finite number of a floating type.
double largest_of(DType dtype) {
  return visit_floating(dtype, []<class T>(Type<T>) { return static_cast<double>(std::numeric_limits<T>::max()); });
}

/// The bounds that are given select the operator.
void require_bound(const std::optional<Operand>& min, const std::optional<Operand>& max) {
  require<ValueError>(min.has_value() || max.has_value(), "no bound; expected a minimum, a maximum or both");
}

/// The opposite; that of the least integer wraps, as everywhere.
Scalar opposite(const Scalar& x) {
  return x.is_floating() ? Scalar(-x.to<double>())
                         : Scalar(static_cast<int64_t>(-static_cast<uint64_t>(x.to<int64_t>())));
}

}  // namespace

// ---- any row, for code that asks at run time ------------------------------------------------------------------------

namespace ops {

Tensor call(Op op, std::span<const Operand> x) {
  if (op == Op::where && x[0].tensor() != nullptr) require_condition(*x[0].tensor());
  switch (x.size()) {
    case 1:
      return compute(op, x[0]);
    case 2:
      return compute(op, x[0], x[1]);
    case 3:
      return compute(op, x[0], x[1], x[2]);
    default:
      return compute(op, x[0], x[1], x[2], x[3]);
  }
}

const Tensor& call_in_place(Op op, const Tensor& self, std::span<const Operand> x) {
  if (op == Op::where) require_condition(self);
  switch (x.size()) {
    case 0:
      return compute_in_place(op, self);
    case 1:
      return compute_in_place(op, self, x[0]);
    case 2:
      return compute_in_place(op, self, x[0], x[1]);
    default:
      return compute_in_place(op, self, x[0], x[1], x[2]);
  }
}

}  // namespace ops

// ---- one function, method, in-place method and out form a row -------------------------------------------------------

#define LORRY_UNARY(name, Formula, result, domain)                                                       \
  Tensor name(const Tensor& x) { return compute(Op::name, x); }                                          \
  const Tensor& name##_out(const Tensor& out, const Tensor& x) { return compute_out(Op::name, out, x); } \
  Tensor Tensor::name() const { return compute(Op::name, *this); }                                       \
  const Tensor& Tensor::name##_() const { return compute_in_place(Op::name, *this); }
#define LORRY_BINARY(name, Formula, result, domain)                                   \
  Tensor name(const Tensor& x, const Operand& y) { return compute(Op::name, x, y); }  \
  Tensor name(const Scalar& x, const Tensor& y) { return compute(Op::name, x, y); }   \
  const Tensor& name##_out(const Tensor& out, const Operand& x, const Operand& y) {   \
    return compute_out(Op::name, out, x, y);                                          \
  }                                                                                   \
  Tensor Tensor::name(const Operand& y) const { return compute(Op::name, *this, y); } \
  const Tensor& Tensor::name##_(const Operand& y) const { return compute_in_place(Op::name, *this, y); }
#include "lorry/formula/pointwise.def"

// ---- arithmetic with more operands ----------------------------------------------------------------------------------

Tensor add(const Tensor& x, const Operand& y, const Scalar& alpha) {
  const Running running("add");
  return compute(Op::add_scaled, x, y, alpha);
}
Tensor sub(const Tensor& x, const Operand& y, const Scalar& alpha) {
  const Running running("sub");
  return compute(Op::add_scaled, x, y, opposite(alpha));
}
Tensor Tensor::add(const Operand& y, const Scalar& alpha) const { return lorry::add(*this, y, alpha); }
Tensor Tensor::sub(const Operand& y, const Scalar& alpha) const { return lorry::sub(*this, y, alpha); }
const Tensor& Tensor::add_(const Operand& y, const Scalar& alpha) const {
  const Running running("add");
  return compute_in_place(Op::add_scaled, *this, y, alpha);
}
const Tensor& Tensor::sub_(const Operand& y, const Scalar& alpha) const {
  const Running running("sub");
  return compute_in_place(Op::add_scaled, *this, y, opposite(alpha));
}

Tensor Tensor::operator-() const { return lorry::neg(*this); }
Tensor Tensor::operator!() const { return lorry::logical_not(*this); }
Tensor Tensor::operator~() const { return lorry::bitwise_not(*this); }
#define LORRY_ASSIGN(sign, op)                                                      \
  const Tensor& Tensor::operator sign(const Operand& y) const& { return op##_(y); } \
  const Tensor& Tensor::operator sign(const Operand& y) const&& {                   \
    const Running running(#op);                                                     \
    ops::require_reachable(*this);                                                  \
    return op##_(y);                                                                \
  }
LORRY_ASSIGN(+=, add)
LORRY_ASSIGN(-=, sub)
LORRY_ASSIGN(*=, mul)
LORRY_ASSIGN(/=, div)
LORRY_ASSIGN(%=, remainder)
LORRY_ASSIGN(&=, bitwise_and)
LORRY_ASSIGN(|=, bitwise_or)
LORRY_ASSIGN(^=, bitwise_xor)
LORRY_ASSIGN(<<=, bitwise_left_shift)
LORRY_ASSIGN(>>=, bitwise_right_shift)
#undef LORRY_ASSIGN

const Tensor& add_out(const Tensor& out, const Tensor& x, const Operand& y, const Scalar& alpha) {
  const Running running("add");
  return compute_out(Op::add_scaled, out, x, y, alpha);
}
const Tensor& sub_out(const Tensor& out, const Tensor& x, const Operand& y, const Scalar& alpha) {
  const Running running("sub");
  return compute_out(Op::add_scaled, out, x, y, opposite(alpha));
}
const Tensor& div_out(const Tensor& out, const Tensor& x, const Operand& y, std::string_view rounding_mode) {
  const Running running("div");
  return compute_out(rounded_division(rounding_mode), out, x, y);
}
Tensor div(const Tensor& x, const Operand& y, std::string_view rounding_mode) {
  const Running running("div");
  return compute(rounded_division(rounding_mode), x, y);
}
Tensor Tensor::div(const Operand& y, std::string_view rounding_mode) const {
  return lorry::div(*this, y, rounding_mode);
}
const Tensor& Tensor::div_(const Operand& y, std::string_view rounding_mode) const {
  const Running running("div");
  return compute_in_place(rounded_division(rounding_mode), *this, y);
}

Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight) {
  return compute(Op::lerp, start, end, weight);
}
const Tensor& lerp_out(const Tensor& out, const Tensor& start, const Tensor& end, const Operand& weight) {
  return compute_out(Op::lerp, out, start, end, weight);
}
Tensor Tensor::lerp(const Tensor& end, const Operand& weight) const { return compute(Op::lerp, *this, end, weight); }
const Tensor& Tensor::lerp_(const Tensor& end, const Operand& weight) const {
  return compute_in_place(Op::lerp, *this, end, weight);
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return compute(Op::addcmul, x, a, b, value);
}
const Tensor& addcmul_out(const Tensor& out, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return compute_out(Op::addcmul, out, x, a, b, value);
}
Tensor Tensor::addcmul(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return compute(Op::addcmul, *this, a, b, value);
}
const Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return compute_in_place(Op::addcmul, *this, a, b, value);
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return compute(Op::addcdiv, x, a, b, value);
}
const Tensor& addcdiv_out(const Tensor& out, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return compute_out(Op::addcdiv, out, x, a, b, value);
}
Tensor Tensor::addcdiv(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return compute(Op::addcdiv, *this, a, b, value);
}
const Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return compute_in_place(Op::addcdiv, *this, a, b, value);
}

// ---- rounding to digits ---------------------------------------------------------------------------------------------

namespace {
/// 10^|decimals|, after the checks that round makes.
double digits(const Tensor& x, int64_t decimals) {
  require<ValueError>(x.defined(), "the tensor is undefined; expected a tensor");
  require<DTypeError>(is_floating(x.dtype()), "decimals of whole numbers; got {}; expected one of {}", x,
                      kFloatingNames);
  return std::pow(10.0, std::fabs(static_cast<double>(decimals)));
}
}  // namespace

Tensor round(const Tensor& x, int64_t decimals) {
  const Running running("round");
  const double scale = digits(x, decimals);
  return decimals < 0 ? lorry::round(x.div(scale)).mul(scale) : lorry::round(x.mul(scale)).div(scale);
}
const Tensor& round_out(const Tensor& out, const Tensor& x, int64_t decimals) {
  const Running running("round");
  return write_out(out, round(x, decimals));
}
Tensor Tensor::round(int64_t decimals) const { return lorry::round(*this, decimals); }
const Tensor& Tensor::round_(int64_t decimals) const {
  const Running running("round");
  const double scale = digits(*this, decimals);
  return decimals < 0 ? div_(scale).round_().mul_(scale) : mul_(scale).round_().div_(scale);
}

// ---- choice ---------------------------------------------------------------------------------------------------------

Tensor where(const Tensor& condition, const Operand& x, const Operand& y) {
  const Running running("where");
  ops::require_condition(condition);
  return compute(Op::where, condition, x, y);
}
const Tensor& where_out(const Tensor& out, const Tensor& condition, const Operand& x, const Operand& y) {
  const Running running("where");
  ops::require_condition(condition);
  return compute_out(Op::where, out, condition, x, y);
}
Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return lorry::where(condition, *this, other);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  const Running running("masked_fill");
  require_defined(x, "x");
  if (value.tensor() != nullptr) require_defined(*value.tensor(), "the value");
  ops::require_condition(mask);
  const bool single = value.tensor() == nullptr || value.tensor()->dim() == 0;
  require<ShapeError>(single, "the value has dimensions; got {}; expected a number or a 0-d tensor",
                      value.tensor() != nullptr ? *value.tensor() : x);
  const DType given = value.tensor() != nullptr ? value.tensor()->dtype() : value.scalar().dtype();
  require<DTypeError>(can_store(given, x.dtype()), "a value of {} cannot be stored in {}; expected one of its kind",
                      given, x);
  return lorry::where(mask, value, x).to(x.dtype());
}
Tensor Tensor::masked_fill(const Tensor& mask, const Operand& value) const {
  return lorry::masked_fill(*this, mask, value);
}
const Tensor& Tensor::masked_fill_(const Tensor& mask, const Operand& value) const {
  const Running running("masked_fill");
  require_defined(*this, "self");
  ops::require_condition(mask);
  const Tensor distinct = without_repeats(*this);
  if (distinct.is_same(*this)) return copy_(lorry::masked_fill(*this, mask, value));
  // An element that is seen several times is filled where any of its appearances is chosen.
  Dims repeated;
  for (int64_t d = 0; d < dim(); ++d)
    if (distinct.size(d) != size(d)) repeated.push_back(d);
  distinct.masked_fill_(mask.expand(sizes()).any(repeated, true), value);
  return *this;
}

Tensor clamp(const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max) {
  const Running running("clamp");
  require_bound(min, max);
  if (!max) return clamp_min(x, *min);
  if (!min) return clamp_max(x, *max);
  return compute(Op::clamp, x, *min, *max);
}
const Tensor& clamp_out(const Tensor& out, const Tensor& x, const std::optional<Operand>& min,
                        const std::optional<Operand>& max) {
  const Running running("clamp");
  require_bound(min, max);
  if (!max) return clamp_min_out(out, x, *min);
  if (!min) return clamp_max_out(out, x, *max);
  return compute_out(Op::clamp, out, x, *min, *max);
}
Tensor Tensor::clamp(const std::optional<Operand>& min, const std::optional<Operand>& max) const {
  return lorry::clamp(*this, min, max);
}
const Tensor& Tensor::clamp_(const std::optional<Operand>& min, const std::optional<Operand>& max) const {
  const Running running("clamp");
  require_bound(min, max);
  if (!max) return clamp_min_(*min);
  if (!min) return clamp_max_(*max);
  return compute_in_place(Op::clamp, *this, *min, *max);
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const Running running("nan_to_num");
  require<ValueError>(x.defined(), "the tensor is undefined; expected a tensor");
  if (!is_floating(x.dtype())) return x.clone();
  const double largest = largest_of(x.dtype());
  return compute(Op::nan_to_num, x, Scalar(nan), Scalar(posinf.value_or(largest)), Scalar(neginf.value_or(-largest)));
}
const Tensor& nan_to_num_out(const Tensor& out, const Tensor& x, double nan, std::optional<double> posinf,
                             std::optional<double> neginf) {
  const Running running("nan_to_num");
  require<ValueError>(x.defined(), "the tensor is undefined; expected a tensor");
  if (!is_floating(x.dtype())) return write_out(out, x);
  const double largest = largest_of(x.dtype());
  return compute_out(Op::nan_to_num, out, x, Scalar(nan), Scalar(posinf.value_or(largest)),
                     Scalar(neginf.value_or(-largest)));
}
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf, std::optional<double> neginf) const {
  return lorry::nan_to_num(*this, nan, posinf, neginf);
}
const Tensor& Tensor::nan_to_num_(double nan, std::optional<double> posinf, std::optional<double> neginf) const {
  const Running running("nan_to_num");
  require<ValueError>(defined(), "the tensor is undefined; expected a tensor");
  if (!is_floating(dtype())) return *this;
  const double largest = largest_of(dtype());
  return compute_in_place(Op::nan_to_num, *this, Scalar(nan), Scalar(posinf.value_or(largest)),
                          Scalar(neginf.value_or(-largest)));
}

// ---- activations with coefficients, and derivatives -----------------------------------------------------------------

Tensor gelu(const Tensor& x, std::string_view approximate) {
  const Running running("gelu");
  require<ValueError>(approximate == "none" || approximate == "tanh",
                      "unknown approximation; got '{}'; expected none or tanh", approximate);
  return approximate == "tanh" ? gelu_tanh(x) : gelu(x);
}
Tensor leaky_relu(const Tensor& x, const Scalar& negative_slope) { return compute(Op::leaky_relu, x, negative_slope); }
const Tensor& leaky_relu_(const Tensor& x, const Scalar& negative_slope) {
  return compute_in_place(Op::leaky_relu, x, negative_slope);
}
const Tensor& leaky_relu_out(const Tensor& out, const Tensor& x, const Scalar& negative_slope) {
  return compute_out(Op::leaky_relu, out, x, negative_slope);
}
Tensor elu(const Tensor& x, const Scalar& alpha) { return compute(Op::elu, x, alpha); }
const Tensor& elu_(const Tensor& x, const Scalar& alpha) { return compute_in_place(Op::elu, x, alpha); }
const Tensor& elu_out(const Tensor& out, const Tensor& x, const Scalar& alpha) {
  return compute_out(Op::elu, out, x, alpha);
}
Tensor softplus(const Tensor& x, const Scalar& beta, const Scalar& threshold) {
  return compute(Op::softplus, x, beta, threshold);
}
const Tensor& softplus_out(const Tensor& out, const Tensor& x, const Scalar& beta, const Scalar& threshold) {
  return compute_out(Op::softplus, out, x, beta, threshold);
}

Tensor sigmoid_backward(const Tensor& grad, const Tensor& output) {
  return compute(Op::sigmoid_backward, grad, output);
}
Tensor tanh_backward(const Tensor& grad, const Tensor& output) { return compute(Op::tanh_backward, grad, output); }
Tensor relu_backward(const Tensor& grad, const Tensor& output) { return compute(Op::relu_backward, grad, output); }
Tensor gelu_backward(const Tensor& grad, const Tensor& x) { return compute(Op::gelu_backward, grad, x); }
Tensor gelu_tanh_backward(const Tensor& grad, const Tensor& x) { return compute(Op::gelu_tanh_backward, grad, x); }
Tensor silu_backward(const Tensor& grad, const Tensor& x) { return compute(Op::silu_backward, grad, x); }
Tensor dropout_backward(const Tensor& grad, const Tensor& chosen, double scale) {
  return compute(Op::addcmul, -0.0, grad, chosen, scale);  // -0 changes no number that it is added to
}

}  // namespace lorry
