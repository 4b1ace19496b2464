// Backward rules of the class losses. Class weights and targets have no gradient.

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

/// A loss against class indices in operators, for gradients that are differentiated again. The class dimension of every
/// member but `classes` has size 1.
struct Samples {
  Tensor target;   ///< class of each sample, 0 where ignored
  Tensor one_hot;  ///< of x's sizes and dtype, 0 throughout where ignored
  Tensor weight;   ///< of each sample's class, 0 where ignored
  Tensor classes;  ///< weight of each class, broadcasting against x
  Tensor scale;    ///< gradient of each sample's loss, without its weight; 0 where ignored

  Samples(const Tensor& grad, const Dims& sizes, const Tensor& targets, const Tensor& weights, int64_t ignore_index,
          Reduction reduction) {
    const int64_t dim = sizes.size() == 1 ? 0 : 1, count = sizes[static_cast<int>(dim)];
    Dims across = Dims::filled(sizes.size(), 1);
    across[static_cast<int>(dim)] = count;
    const Options options = grad.options();
    target = targets.to(kI64).unsqueeze(dim);
    const Tensor ignored = target.eq(ignore_index), counted = ignored.logical_not().to(options.dtype);
    target = target.masked_fill(ignored, 0);
    one_hot = target.eq(arange(count, {kI64, options.device}).reshape(across)).to(options.dtype).mul(counted);
    classes = weights.defined() ? weights.detach().reshape(across) : ones(across, options);
    weight = one_hot.mul(classes).sum({dim}, true);
    scale = counted.mul(grad.dim() == 0 ? grad : grad.unsqueeze(dim));
    if (reduction == Reduction::mean) scale = scale.div(weight.sum());
  }
};

Grads cross_entropy_gradient(const Call& c, const Grads& g) {
  const Tensor x = c.input(0), target = c.input(1), weight = c.input(2);
  const auto reduction = static_cast<Reduction>(c.attribute<int64_t>(1));
  const double smoothing = c.attribute<double>(2);
  if (!grad_enabled()) {
    const Tensor total = reduction == Reduction::mean ? c.output(2) : Tensor();
    return {cross_entropy_backward(g[0], x, target, weight, c.output(1), total, c.attribute<int64_t>(0), reduction,
                                   smoothing)};
  }
  const Samples s(g[0], x.sizes(), target, weight, c.attribute<int64_t>(0), reduction);
  const int64_t dim = x.dim() == 1 ? 0 : 1;
  const Tensor p = softmax(x, dim);
  const Tensor own = p.sub(s.one_hot).mul(s.weight).mul(1 - smoothing);
  const Tensor spread = p.mul(s.classes.sum()).sub(s.classes).mul(smoothing / static_cast<double>(x.size(dim)));
  return {s.scale.mul(own.add(spread))};
}

Grads nll_loss_gradient(const Call& c, const Grads& g) {
  const Tensor target = c.input(1), weight = c.input(2);
  const auto reduction = static_cast<Reduction>(c.attribute<int64_t>(1));
  if (!grad_enabled()) {
    const Tensor total = reduction == Reduction::mean ? c.output(1) : Tensor();
    return {nll_loss_backward(g[0], c.sizes(0), target, weight, total, c.attribute<int64_t>(0), reduction)};
  }
  const Samples s(g[0], c.sizes(0), target, weight, c.attribute<int64_t>(0), reduction);
  return {s.one_hot.mul(s.weight).mul(s.scale).neg()};
}

constexpr Rule kRules[] = {
    {Op::cross_entropy, kInput0 | kInput1 | kInput2 | kOutput1 | kOutput2, cross_entropy_gradient},
    {Op::nll_loss, kInput1 | kInput2 | kOutput1, nll_loss_gradient},
};

}  // namespace

std::span<const Rule> loss_rules() { return kRules; }

}  // namespace lorry::autograd
