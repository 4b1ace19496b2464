// Whether tensors agree: element by element within a tolerance, or as a whole.

#include "lorry/ops/array.h"
#include "lorry/ops/pointwise.h"

namespace lorry {
namespace {

void require_comparable(const Tensor& x, const Tensor& y) {
  require<ValueError>(x.defined() && y.defined(), "a tensor is undefined; expected two tensors");
  require_same_device(x, y);
  require<DTypeError>(x.dtype() == y.dtype(), "types differ; got {} and {}; expected one type", x, y);
}

bool true_everywhere(const Tensor& truth) { return truth.all().item<bool>(); }

}  // namespace

Tensor isclose(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan) {
  const Running running("isclose");
  require_comparable(x, y);
  require<ValueError>(rtol >= 0 && atol >= 0, "a tolerance is negative; got rtol {}, atol {}; expected >= 0", rtol,
                      atol);
  const ModeScope quiet(0, kGradMode);
  const bool floating = x.is_floating_point();
  Tensor close = x == y;  // also where both are the same infinity
  if (equal_nan && floating) close |= isnan(x) & isnan(y);
  if (rtol == 0 && atol == 0) return close;
  // Tolerances are real numbers, so whole numbers are measured as such.
  const Tensor a = floating ? x : x.to(kF64), b = floating ? y : y.to(kF64);
  const Tensor distance = abs(a - b);
  return close | (isfinite(distance) & (distance <= atol + abs(rtol * b)));
}

bool allclose(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan) {
  const Running running("allclose");
  return true_everywhere(isclose(x, y, rtol, atol, equal_nan));
}

bool equal(const Tensor& x, const Tensor& y) {
  const Running running("equal");
  require_comparable(x, y);
  return x.sizes() == y.sizes() && true_everywhere(x == y);
}

Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return lorry::isclose(*this, other, rtol, atol, equal_nan);
}
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return lorry::allclose(*this, other, rtol, atol, equal_nan);
}
bool Tensor::equal(const Tensor& other) const { return lorry::equal(*this, other); }

}  // namespace lorry
