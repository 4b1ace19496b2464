// The losses that are composed of other operators.

#include "lorry/ops/loss.h"

#include "lorry/ops/array.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/promotion.h"

namespace lorry {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return losses;
    case Reduction::mean:
      return losses.mean();
    case Reduction::sum:
      break;
  }
  return losses.sum();
}

Tensor difference(const Tensor& x, const Tensor& target) {
  require_defined(x, "x");
  require_defined(target, "target");
  const DType type = promote(x.dtype(), target.dtype());
  require<DTypeError>(is_floating(type),
                      "neither operand is floating; got x: {}, target: {}; expected a floating dtype", x, target);
  return x.sub(target);
}

/// The difference in the type that a loss of several steps computes in: f32 for narrow floats, whose losses are rounded
/// once.
Tensor wide_difference(const Tensor& x, const Tensor& target) {
  require_defined(x, "x");
  require_defined(target, "target");
  const DType type = result_type(x, target);
  return is_narrow(type) ? difference(x.to(kF32), target.to(kF32)) : difference(x, target);
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  const Running running("mse_loss");
  return reduced(difference(x, target).square(), reduction);
}
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  const Running running("l1_loss");
  return reduced(difference(x, target).abs(), reduction);
}

// The square is taken of small differences only: the gradient of an infinite one, though not chosen, would be NaN.

Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction, double delta) {
  const Running running("huber_loss");
  require<ValueError>(delta > 0, "delta must be positive; got {}; expected > 0", delta);
  const Tensor d = wide_difference(x, target), far = d.abs();
  return reduced(d.masked_fill(far.gt(delta), 0)
                     .square()
                     .mul(0.5)
                     .where(far.le(delta), far.sub(0.5 * delta).mul(delta))
                     .to(result_type(x, target)),
                 reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, double beta) {
  const Running running("smooth_l1_loss");
  require<ValueError>(beta >= 0, "beta must not be negative; got {}; expected >= 0", beta);
  if (beta == 0) return l1_loss(x, target, reduction);
  const Tensor d = wide_difference(x, target), far = d.abs();
  return reduced(d.masked_fill(far.ge(beta), 0)
                     .square()
                     .mul(0.5)
                     .div(beta)
                     .where(far.lt(beta), far.sub(0.5 * beta))
                     .to(result_type(x, target)),
                 reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        Reduction reduction, const Tensor& pos_weight) {
  const Running running("binary_cross_entropy_with_logits");
  require_defined(x, "x");
  require_defined(target, "target");
  require<ShapeError>(x.sizes() == target.sizes(), "sizes differ; got x: {}, target: {}; expected the same", x, target);
  require<DTypeError>(is_floating(x.dtype()), "the input is not floating; got x: {}; expected one of {}", x,
                      kFloatingNames);
  // -log sigmoid(x) = log(1 + exp(-x)); past 40 the 1 is below the last digit of f64.
  const Tensor surprise = softplus(x.neg(), 1.0, 40.0);
  const Tensor positive = pos_weight.defined() ? surprise.mul(pos_weight.sub(1).mul(target).add(1)) : surprise;
  const Tensor losses = target.neg().add(1).mul(x).add(positive);
  return reduced(weight.defined() ? losses.mul(weight) : losses, reduction);
}

}  // namespace lorry
