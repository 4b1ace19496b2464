#include "lorry/nn/split.h"

#include <algorithm>

#include "lorry/base/integers.h"
#include "lorry/ops/ops.h"

namespace lorry::nn {
namespace {

/// The sizes with others in the place of one.
Dims with(const Dims& sizes, int dim, std::initializer_list<int64_t> instead) {
  Dims result;
  for (int i = 0; i < sizes.size(); ++i) {
    if (i != dim)
      result.push_back(sizes[i]);
    else
      for (const int64_t size : instead) result.push_back(size);
  }
  return result;
}

}  // namespace

OwnIndices::OwnIndices(const Tensor& all, int64_t first, int64_t count, int64_t whole) {
  const Tensor own = all - first;
  is_own = own.ge(0).logical_and(own.lt(std::min(count, whole - first)));
  const Tensor exists = all.ge(0).logical_and(all.lt(whole));
  index = own.where(is_own, exists.logical_not().to(all.dtype()).neg());
}

Tensor part_of(const Tensor& whole, const SplitRule& rule, const Split& split) {
  const int64_t each = whole.size(rule.dim) / rule.blocks, own = ceil_div(each, split.size()),
                first = std::min(split.rank() * own, each), count = std::min(own, each - first);
  const Tensor blocks = whole.contiguous().view(with(whole.sizes(), rule.dim, {rule.blocks, each}));
  const Tensor part = zeros(with(whole.sizes(), rule.dim, {rule.blocks, own}), whole.options());
  part.narrow(rule.dim + 1, 0, count).copy_(blocks.narrow(rule.dim + 1, first, count));
  return part.view(with(whole.sizes(), rule.dim, {rule.blocks * own}));
}

Tensor whole_of(const Tensor& part, const Dims& sizes, const SplitRule& rule, const Split& split) {
  const int64_t each = sizes[rule.dim] / rule.blocks, own = ceil_div(each, split.size());
  // [ranks, ..., blocks, own, ...] becomes [..., blocks, ranks, own, ...].
  Dims blocks = with(part.sizes(), rule.dim, {rule.blocks, own});
  blocks.insert(0, split.size());
  const Tensor all = split.gather(part.contiguous()).view(blocks).movedim({0}, {rule.dim + 1});
  return all.reshape(with(sizes, rule.dim, {rule.blocks, split.size() * own}))
      .narrow(rule.dim + 1, 0, each)
      .reshape(sizes);
}

}  // namespace lorry::nn
