#include "lorry/optim/lists.h"

#include "lorry/formula/clip.h"
#include "lorry/ops/ops.h"

namespace lorry::optim {

using foreach::TensorList;

TensorList ListValue::as_list(const TensorList& like) const {
  if (is_list_) return list_;
  const Tensor one = single_.tensor(like[0]);
  std::vector<Tensor> list;
  for (const Tensor& x : like) list.push_back(one.expand(x.sizes()));
  return list;
}

ListValue select(const ListValue& mask, const ListValue& a, const ListValue& b) {
  if (!mask.is_list_ && !a.is_list_ && !b.is_list_) return ListValue(select(mask.single_, a.single_, b.single_));
  const TensorList& list = mask.is_list_ ? mask.list_ : a.is_list_ ? a.list_ : b.list_;
  // Numbers as tensors in the type of computation: of two numbers `where` could not know it.
  const Tensor x = a.is_list_ ? Tensor() : a.single_.tensor(list[0]), y = b.is_list_ ? Tensor() : b.single_.tensor(list[0]);
  return ListValue(foreach::where(mask.as_list(list), a.is_list_ ? foreach::Argument(a.list_) : x, b.is_list_ ? foreach::Argument(b.list_) : y));
}

namespace detail {
namespace {

DType own(const ByLists& work) { return !work.param.empty() && work.param[0].dtype() == kF64 ? kF64 : kF32; }

/// Entry e for the functions of the loop.
ByOperators entry(const ByLists& work, size_t e) {
  return {.param = work.param[e], .grad = work.grad[e], .kept = work.kept[e], .states = nullptr, .numbers = {}, .grad_factor = work.grad_factor, .kept_as = work.kept_as};
}

}  // namespace

TensorList wide_parameters(const ByLists& work) {
  if (work.kept_as == kernels::Kept::master) return work.kept;
  if (work.kept_as == kernels::Kept::nothing) return foreach::to(work.param, own(work));
  std::vector<Tensor> joined;
  for (size_t e = 0; e < work.param.size(); ++e) joined.push_back(wide_parameter(entry(work, e)));
  return joined;
}

TensorList wide_gradients(const ByLists& work) {
  const TensorList grads = foreach::to(work.grad, own(work));
  return work.grad_factor.defined() ? foreach::mul(grads, formula::multiplier(work.grad_factor.to(own(work)))) : grads;
}

void store(const ByLists& work, const ListValue& result, const ListValue* states, int count) {
  const TensorList param = result.as_list(work.param);
  const bool skips = work.grad_factor.defined();
  const Tensor steps = skips ? work.grad_factor.eq(work.grad_factor) : Tensor();
  const auto write = [&](const TensorList& to, const TensorList& x) {
    if (!skips) {
      foreach::copy_(to, x);
      return;
    }
    const TensorList condition = std::vector<Tensor>(to.size(), steps);
    foreach::copy_(to, foreach::where(condition, x, x[0].dtype() == to[0].dtype() ? to : foreach::to(to, x[0].dtype())));
  };
  // As in the loop: what is written first must not change a state that was handed on.
  std::vector<TensorList> values;
  for (int k = 0; k < count; ++k) {
    const TensorList state = states[k].as_list(work.param);
    std::vector<Tensor> own;
    for (size_t e = 0; e < work.param.size(); ++e) {
      const Tensor& x = state[e];
      const auto lies_in = [&](const Tensor& to) { return to.defined() && &to.storage() == &x.storage(); };
      bool handed_on = lies_in(work.param[e]) || lies_in(work.kept[e]);
      for (int other = 0; other < k; ++other) handed_on = handed_on || lies_in(work.states[other][e]);
      own.push_back(handed_on ? x.clone() : x);
    }
    values.emplace_back(std::move(own));
  }
  if (work.kept_as == kernels::Kept::split) {
    for (size_t e = 0; e < work.param.size(); ++e) store(entry(work, e), Value(param[e]), nullptr, 0);
  } else {
    write(work.param, param);
    if (work.kept_as == kernels::Kept::master) write(work.kept, param);
  }
  for (int k = 0; k < count; ++k) write(work.states[k], values[static_cast<size_t>(k)]);
  if (work.zero_grads) foreach::zero_(work.grad);
}

}  // namespace detail
}  // namespace lorry::optim
