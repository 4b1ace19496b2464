// Backward rules of softmax, dropout and the norms: one fused kernel while gradients are not being recorded, the same
// formula in operators when they are.

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

Grads softmax_gradient(const Call& c, const Grads& g) {
  const int64_t dim = c.attribute<int64_t>(0);
  const Tensor y = c.output();
  if (!grad_enabled()) return {softmax_backward(g[0], y, dim)};
  const Tensor weighted = g[0].mul(y);
  return {weighted.sub(y.mul(weighted.sum({dim}, true)))};
}

Grads log_softmax_gradient(const Call& c, const Grads& g) {
  const int64_t dim = c.attribute<int64_t>(0);
  const Tensor y = c.output();
  if (!grad_enabled()) return {log_softmax_backward(g[0], y, dim)};
  return {g[0].sub(y.exp().mul(g[0].sum({dim}, true)))};
}

/// x normalised over its last `n` dimensions, in operators: (x - mean) * rstd.
struct Normal {
  Tensor normal, rstd;
};
Normal normal(const Tensor& x, const Dims& trailing, double eps, bool centred) {
  const Tensor centre = centred ? x.sub(x.mean(trailing, true)) : x;
  const Tensor rstd = centre.square().mean(trailing, true).add(eps).rsqrt();
  return {centre.mul(rstd), rstd};
}

/// Gradients of x, weight and bias. Sums over the leading dimensions are over rows of one length, whatever their rank.
Grads norm_gradient(const Call& c, const Grads& g, bool centred) {
  const int64_t normalized = c.attribute<int64_t>(0);
  const Tensor x = c.input(0), weight = c.input(1);
  const bool has_bias = centred && c.needs(2);
  if (!grad_enabled()) {
    const NormGrads grads = layer_norm_backward(g[0], x, weight, centred ? c.output(2) : Tensor(), c.output(1),
                                                normalized, c.needs(0), c.needs(1), has_bias);
    return {grads.x, grads.weight, grads.bias};
  }
  Dims trailing, leading;
  for (int64_t d = 0; d < x.dim(); ++d) (d < x.dim() - normalized ? leading : trailing).push_back(d);
  // An empty list would mean every dimension.
  const auto over_rows = [&](const Tensor& t) { return leading.empty() ? t : t.sum(leading); };
  const auto [xhat, rstd] = normal(x, trailing, c.attribute<double>(1), centred);
  Grads grads(3);
  if (c.needs(0)) {
    const Tensor scaled = weight.defined() ? g[0].mul(weight) : g[0];
    const Tensor along = scaled.sub(xhat.mul(scaled.mul(xhat).mean(trailing, true)));
    grads[0] = rstd.mul(centred ? along.sub(scaled.mean(trailing, true)) : along);
  }
  if (c.needs(1)) grads[1] = over_rows(g[0].mul(xhat));
  if (has_bias) grads[2] = over_rows(g[0]);
  if (!centred) grads.pop_back();
  return grads;
}

Grads layer_norm_gradient(const Call& c, const Grads& g) { return norm_gradient(c, g, true); }

Grads rms_norm_gradient(const Call& c, const Grads& g) {
  Grads grads = norm_gradient(c, g, false);
  grads.resize(2);
  return grads;
}

Grads dropout_gradient(const Call& c, const Grads& g) {
  const double scale = c.attribute<double>(1);
  const Tensor chosen = c.output(1);
  return {grad_enabled() ? g[0].mul(chosen).mul(scale) : dropout_backward(g[0], chosen, scale)};
}

constexpr Rule kRules[] = {
    {Op::softmax, kOutput0, softmax_gradient},
    {Op::log_softmax, kOutput0, log_softmax_gradient},
    {Op::layer_norm, kInput0 | kInput1 | kOutput1 | kOutput2, layer_norm_gradient},
    {Op::dropout, kOutput1, dropout_gradient},
    {Op::rms_norm, kInput0 | kInput1 | kOutput1, rms_norm_gradient},
};

}  // namespace

std::span<const Rule> normalize_rules() { return kRules; }

}  // namespace lorry::autograd
