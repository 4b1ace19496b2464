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

Tensor wide_state(const ByOperators& work, int k) { return loaded(work.storing, k, {work.states[k]}, {work.param})[0]; }

void add_parameter(Writes& writes, const ByOperators& work, const Tensor& x) {
  switch (work.kept_as) {
    case kernels::Kept::stochastic: return writes.add(work.param, x, -1, work.param, work.number);
    case kernels::Kept::split: {
      const auto [upper, lower] = halves(x);
      writes.add(work.param, upper);
      return writes.add(work.kept, lower);
    }
    case kernels::Kept::master: writes.add(work.kept, x); [[fallthrough]];
    case kernels::Kept::nothing: return writes.add(work.param, x);
  }
}

void store(const ByOperators& work, const Value& param, const Value* states, int count) {
  Writes writes(work.storing, work.grad_factor, false);
  add_parameter(writes, work, param.tensor(work.param));
  for (int k = 0; k < count; ++k) writes.add(work.states[k], states[k].tensor(work.param), k, work.param, work.number);
  writes.finish();
  if (work.zero_grads) work.grad.zero_();
}

}  // namespace detail
}  // namespace lorry::optim
