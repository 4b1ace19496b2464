// Backward rules of reductions and scans. Subgradients are PyTorch's: amax, amin and the median of all elements share
// evenly among equals (and NaNs among NaNs), max along a dimension sends everything to the position it returned, a norm
// has gradient 0 where it is 0.

#include <cmath>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

/// A result (or its gradient) with a 1 in each place where input 0 was reduced, so that it broadcasts against the
/// input.
Tensor restored(const Tensor& y, const Call& c, const Dims& dims) {
  Dims sizes = c.sizes(0);
  for (const int64_t d : dims) sizes[static_cast<int>(d)] = 1;
  return y.reshape(sizes);
}

double count(const Call& c, const Dims& dims) {
  double n = 1;
  for (const int64_t d : dims) n *= static_cast<double>(c.layout(0).sizes[d]);
  return n;
}

Grads sum_gradient(const Call& c, const Grads& g) {
  return {restored(g[0], c, c.attribute<Dims>(0)).expand(c.sizes(0))};
}

Grads mean_gradient(const Call& c, const Grads& g) {
  const Dims& dims = c.attribute<Dims>(0);
  return {restored(g[0], c, dims).div(count(c, dims)).expand(c.sizes(0))};
}

Grads extreme_gradient(const Call& c, const Grads& g) {
  const Dims& dims = c.attribute<Dims>(0);
  const Tensor x = c.input(0).detach();
  if (x.numel() == 0) return {zeros(x.sizes(), x.options())};  // of a median, which is NaN
  const Tensor chosen =
      x.eq(restored(c.output().detach(), c, dims)).logical_or(x.isnan());  // with a NaN about, it is the result
  return {restored(g[0], c, dims).div(chosen.sum(dims, true)).mul(chosen)};
}

/// aminmax: the largest and the smallest elements, each shared among equals.
Grads range_gradient(const Call& c, const Grads& g) {
  const Dims& dims = c.attribute<Dims>(0);
  const Tensor x = c.input(0).detach();
  Tensor sum;
  for (int i = 0; i < 2; ++i) {
    if (!g[static_cast<size_t>(i)].defined()) continue;
    const Tensor chosen = x.eq(restored(c.output(i).detach(), c, dims)).logical_or(x.isnan());
    const Tensor share = restored(g[static_cast<size_t>(i)], c, dims).div(chosen.sum(dims, true)).mul(chosen);
    sum = sum.defined() ? sum.add(share) : share;
  }
  return {sum};
}

Grads position_gradient(const Call& c, const Grads& g) {
  if (!g[0].defined()) return {};
  const int64_t dim = c.attribute<int64_t>(0);
  if (c.sizes(0).empty()) return {g[0]};
  const bool keepdim = c.attribute<bool>(1);
  const Tensor indices = c.output(1), at = keepdim ? indices : indices.unsqueeze(dim),
               values = keepdim ? g[0] : g[0].unsqueeze(dim);
  return {zeros(c.sizes(0), values.options()).scatter_add(dim, at, values)};
}

// ---- products -------------------------------------------------------------------------------------------------------

/// The product of all others along `dim`, right where some are 0: those before times those after.
Tensor product_of_others(const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim);
  if (n == 0) return x;
  const Tensor one = ones_like(x.narrow(dim, 0, 1));
  const Tensor before = cat({one, x.narrow(dim, 0, n - 1).cumprod(dim)}, dim);
  const Tensor after = cat({x.narrow(dim, 1, n - 1).flip({dim}).cumprod(dim).flip({dim}), one}, dim);
  return before.mul(after);
}

Grads prod_gradient(const Call& c, const Grads& g) {
  const Tensor x = c.input(0);
  const Dims& dims = c.attribute<Dims>(0);
  if (x.dim() == 0) return {g[0]};
  if (dims.size() == 1) return {restored(g[0], c, dims).mul(product_of_others(x, dims[0]))};
  return {g[0].reshape({1}).mul(product_of_others(x.reshape({-1}), 0)).reshape(x.sizes())};
}

/// Sums from each position to the end.
Tensor sum_from(const Tensor& x, int64_t dim) { return x.flip({dim}).cumsum(dim).flip({dim}); }

Grads cumsum_gradient(const Call& c, const Grads& g) {
  return {c.sizes(0).empty() ? g[0] : sum_from(g[0], c.attribute<int64_t>(0))};
}

/// d/dx_k of the running products y_i is before_k (g_k + x_{k+1} (g_{k+1} + x_{k+2} (...))), where before_k is the
/// product of all x_j before x_k: no division, so it is right wherever zeros are. The sums s_k = g_k + x_{k+1} s_{k+1}
/// are found in log2(n) rounds: after a round of reach r, s_k = sum_k + factor_k s_{k+r}, and two neighbours make one
/// of twice the reach.
Grads cumprod_gradient(const Call& c, const Grads& g) {
  const Tensor x = c.input(0);
  const int64_t dim = c.attribute<int64_t>(0);
  if (x.dim() == 0 || x.numel() == 0) return {g[0]};
  const int64_t n = x.size(dim);
  if (n == 1) return {g[0]};
  // On the CPU it costs little to look, and a quotient is ten times as quick. A GPU would have to be waited for.
  if (x.device().is_cpu() && !grad_enabled() && x.ne(0).all().item<bool>())
    return {sum_from(x.cumprod(dim).mul(g[0]), dim).div(x)};
  const Tensor one = ones_like(x.narrow(dim, 0, 1));
  const auto head = [&](const Tensor& t, int64_t reach) { return t.narrow(dim, 0, n - reach); };
  const auto tail = [&](const Tensor& t, int64_t reach) { return t.narrow(dim, reach, n - reach); };
  const auto last = [&](const Tensor& t, int64_t reach) { return t.narrow(dim, n - reach, reach); };
  Tensor sum = g[0], factor = cat({tail(x, 1), zeros_like(one)}, dim);
  for (int64_t reach = 1; reach < n; reach *= 2) {
    sum = cat({head(sum, reach).addcmul(head(factor, reach), tail(sum, reach)), last(sum, reach)}, dim);
    if (2 * reach < n) factor = cat({head(factor, reach).mul(tail(factor, reach)), last(factor, reach)}, dim);
  }
  return {cat({one, head(x, 1).cumprod(dim)}, dim).mul(sum)};
}

// ---- moments and norms ----------------------------------------------------------------------------------------------

/// The gradient of the variance, before it is multiplied by that of the result.
Tensor deviations(const Call& c, const Dims& dims) {
  const Tensor x = c.input(0);
  const double freedom = count(c, dims) - c.attribute<double>(1);
  return x.sub(x.mean(dims, true)).mul(2 / std::max(0.0, freedom));
}

Grads var_gradient(const Call& c, const Grads& g) {
  const Dims& dims = c.attribute<Dims>(0);
  return {restored(g[0], c, dims).mul(deviations(c, dims))};
}

Grads std_gradient(const Call& c, const Grads& g) {
  const Dims& dims = c.attribute<Dims>(0);
  const Tensor y = c.output();
  return {restored(g[0].div(y.mul(2)).masked_fill(y.detach().eq(0), 0), c, dims).mul(deviations(c, dims))};
}

Grads norm_gradient(const Call& c, const Grads& g) {
  const double p = c.attribute<double>(0);
  const Dims& dims = c.attribute<Dims>(1);
  const Tensor x = c.input(0);
  if (p == 0) return {zeros_like(x)};
  const Tensor grad = restored(g[0], c, dims);
  if (p == 1) return {grad.mul(x.sign())};
  const Tensor y = restored(c.output(), c, dims), nothing = y.detach().eq(0);
  if (p == 2) return {x.mul(grad.div(y)).masked_fill(nothing, 0)};
  if (std::isinf(p)) {
    const Tensor chosen = x.detach().abs().eq(y.detach());
    return {grad.div(chosen.sum(dims, true)).mul(chosen).mul(x.sign())};
  }
  // d|x|/dx is 0 at 0, also where the power alone would be infinite.
  const Tensor slope = x.abs().pow(p - 1).mul(x.sign()).masked_fill(x.detach().eq(0), 0);
  return {slope.mul(grad.mul(y.pow(1 - p)).masked_fill(nothing, 0))};
}

Grads logsumexp_gradient(const Call& c, const Grads& g) {
  const Dims& dims = c.attribute<Dims>(0);
  const Tensor y = restored(c.output(), c, dims);
  // Where everything is -inf, exp(x - 0) gives the gradient 0.
  return {restored(g[0], c, dims).mul(c.input(0).sub(y.masked_fill(y.detach().eq(-INFINITY), 0)).exp())};
}

constexpr Rule kRules[] = {
    {Op::sum, kNothing, sum_gradient},
    {Op::mean, kNothing, mean_gradient},
    {Op::prod, kInput0, prod_gradient},
    {Op::amax, kInput0 | kOutput0, extreme_gradient},
    {Op::amin, kInput0 | kOutput0, extreme_gradient},
    {Op::aminmax, kInput0 | kOutput0 | kOutput1, range_gradient},
    {Op::median, kInput0 | kOutput0, extreme_gradient},
    {Op::max, kOutput1, position_gradient},
    {Op::min, kOutput1, position_gradient},
    {Op::var, kInput0, var_gradient},
    {Op::std, kInput0 | kOutput0, std_gradient},
    {Op::norm, kInput0 | kOutput0, norm_gradient},
    {Op::logsumexp, kInput0 | kOutput0, logsumexp_gradient},
    {Op::cumsum, kNothing, cumsum_gradient},
    {Op::cumprod, kInput0, cumprod_gradient},
};

}  // namespace

std::span<const Rule> reduce_rules() { return kRules; }

}  // namespace lorry::autograd
