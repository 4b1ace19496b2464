// Sorting moves elements, so gradients move back to where the elements came from.

#include "lorry/autograd/rules.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

Grads order_gradient(const Call& c, const Grads& g) {
  if (!g[0].defined()) return {};
  const Tensor indices = c.output(1);
  if (c.sizes(0).empty()) return {g[0]};
  return {zeros(c.sizes(0), g[0].options()).scatter_add(c.attribute<int64_t>(0), indices, g[0])};
}

constexpr Rule kRules[] = {
    {Op::sort, kOutput1, order_gradient},
    {Op::topk, kOutput1, order_gradient},
};

}  // namespace

std::span<const Rule> sort_rules() { return kRules; }

}  // namespace lorry::autograd
