#include "lorry/optim/loop.h"

#include "lorry/formula/clip.h"
#include "lorry/ops/ops.h"

namespace lorry::optim {

Tensor Value::tensor(const Tensor& like) const {
  return x_.defined() ? x_ : full({}, number_, {.dtype = ComputedIn::dtype(), .device = like.device()});
}

namespace detail {
namespace {

/// The sum of the halves of formula/split.h.
Tensor joined(const Tensor& upper, const Tensor& lower) {
  return upper.view(kI16).to(kI32).bitwise_left_shift(16).add(lower.to(kI32)).view(kF32);
}

/// Those of x: {upper as bf16, lower as i16}.
std::pair<Tensor, Tensor> halves(const Tensor& x) {
  const Tensor bits = x.view(kI32), nan = x.isnan();
  const Tensor upper = full({}, 0x7fc0, {.dtype = kI32, .device = x.device()}).where(nan, bits.add(0x8000).bitwise_right_shift(16));
  const Tensor lower = bits.sub(upper.bitwise_left_shift(16)).masked_fill(nan, 0);
  return {upper.to(kI16).view(kBF16), lower.to(kI16)};
}

}  // namespace

Tensor wide_parameter(const ByOperators& work) {
  switch (work.kept_as) {
    case kernels::Kept::master: return work.kept;
    case kernels::Kept::split: return joined(work.param, work.kept);
    case kernels::Kept::nothing:
    case kernels::Kept::stochastic: break;
  }
  return work.param.to(work.param.dtype() == kF64 ? kF64 : kF32);
}

Tensor wide_gradient(const ByOperators& work) {
  const DType dtype = work.param.dtype() == kF64 ? kF64 : kF32;
  const Tensor grad = work.grad.to(dtype);
  return work.grad_factor.defined() ? grad.mul(formula::multiplier(work.grad_factor.to(dtype))) : grad;
}

void store(const ByOperators& work, const Value& result, const Value* states, int count) {
  const Tensor param = result.tensor(work.param);
  Tensor steps;
  if (work.grad_factor.defined()) steps = work.grad_factor.eq(work.grad_factor);
  const auto write = [&](const Tensor& to, const Tensor& x) { to.copy_(steps.defined() ? x.where(steps, to.to(x.dtype())) : x); };
  // A formula may hand an array on to a state as it was: what is written first must not change it.
  std::vector<Tensor> values;
  for (int k = 0; k < count; ++k) {
    const Tensor x = states[k].tensor(work.param);
    const auto lies_in = [&](const Tensor& to) { return to.defined() && &to.storage() == &x.storage(); };
    bool handed_on = lies_in(work.param) || lies_in(work.kept);
    for (int other = 0; other < k; ++other) handed_on = handed_on || lies_in(work.states[other]);
    values.push_back(handed_on ? x.clone() : x);
  }
  if (work.kept_as == kernels::Kept::split) {
    const auto [upper, lower] = halves(param);
    write(work.param, upper);
    write(work.kept, lower);
  } else {
    write(work.param, param);
    if (work.kept_as == kernels::Kept::master) write(work.kept, param);
  }
  for (int k = 0; k < count; ++k) write(work.states[k], values[k]);
  if (work.zero_grads) work.grad.zero_();
}

}  // namespace detail
}  // namespace lorry::optim
