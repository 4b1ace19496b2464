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
  return {.param = work.param[e], .grad = work.grad[e], .kept = work.kept[e], .states = nullptr, .numbers = {}, .grad_factor = work.grad_factor, .kept_as = work.kept_as,
          .number = work.number[e]};
}

}  // namespace

TensorList wide_parameters(const ByLists& work) {
  if (work.kept_as == kernels::Kept::master) return work.kept;
  if (work.kept_as != kernels::Kept::split) return foreach::to(work.param, own(work));
  std::vector<Tensor> joined;
  for (size_t e = 0; e < work.param.size(); ++e) joined.push_back(wide_parameter(entry(work, e)));
  return joined;
}

TensorList wide_gradients(const ByLists& work) {
  const TensorList grads = foreach::to(work.grad, own(work));
  return work.grad_factor.defined() ? foreach::mul(grads, formula::multiplier(work.grad_factor.to(own(work)))) : grads;
}

TensorList wide_states(const ByLists& work, int k) {
  return work.storing.types[k] == StateType::f32 ? work.states[k] : loaded(work.storing, k, work.states[k].tensors(), work.param.tensors());
}

void store(const ByLists& work, const ListValue& result, const ListValue* states, int count) {
  Writes writes(work.storing, work.grad_factor, true);
  const TensorList param = result.as_list(work.param);
  for (size_t e = 0; e < work.param.size(); ++e) add_parameter(writes, entry(work, e), param[e]);
  for (int k = 0; k < count; ++k) {
    const TensorList state = states[k].as_list(work.param);
    for (size_t e = 0; e < work.param.size(); ++e) writes.add(work.states[k][e], state[e], k, work.param[e], work.number[e]);
  }
  writes.finish();
  if (work.zero_grads) foreach::zero_(work.grad);
}

}  // namespace detail
}  // namespace lorry::optim
