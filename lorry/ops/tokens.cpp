#include "lorry/ops/tokens.h"

#include "lorry/base/events.h"
#include "lorry/kernels/tokens.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry {
namespace {

void require_logits(const Tensor& logits) {
  require_defined(logits, "logits");
  require<DTypeError>(is_floating(logits.dtype()), "logits are not floating; got {}; expected one of {}", logits,
                      kFloatingNames);
  require<ShapeError>(logits.dim() == 2, "logits are no matrix; got {}; expected [n, vocab]", logits);
  require<GradError>(!(mode(kGradMode) && logits.requires_grad()),
                     "logits require a gradient, and there is none; got {}; call it inside NoGrad", logits);
}

/// A setting with an entry for every row of the logits.
void require_setting(const Tensor& x, const char* name, DType dtype, const Tensor& logits) {
  require_defined(x, name);
  require_same_device(x, logits);
  require<DTypeError>(x.dtype() == dtype, "{} has another dtype; got {}; expected {}", name, x, dtype);
  require<ShapeError>(x.sizes() == Dims{logits.size(0)}, "{} does not fit; got {} for logits: {}; expected [{}]", name,
                      x, logits, logits.size(0));
}

/// x, or a copy, with rows of unit stride.
Tensor with_rows(const Tensor& x) {
  if (x.numel() == 0 || x.stride(1) == 1) return x;
  events::emit(events::Kind::hidden_copy, t_operator, "the rows of an operand have no unit stride");
  return x.contiguous();
}

}  // namespace

Tensor sample_tokens(const Tensor& logits, const Tensor& temperature, const Tensor& top_k, const Tensor& top_p,
                     const Tensor& uniform) {
  const Running running("sample_tokens");
  require_logits(logits);
  require<ShapeError>(logits.size(1) > 0 && logits.size(1) <= kernels::kMostTokens,
                      "too few or too many tokens; got logits: {}; expected 1 to {} a row", logits,
                      kernels::kMostTokens);
  require_setting(temperature, "temperature", kF32, logits);
  require_setting(top_k, "top_k", kI32, logits);
  require_setting(top_p, "top_p", kF32, logits);
  require_setting(uniform, "uniform", kF64, logits);
  return door::call(Op::sample_tokens, {&logits, &temperature, &top_k, &top_p, &uniform}, [&] {
    const Tensor out = empty({logits.size(0)}, {kI64, logits.device()});
    if (out.numel() == 0) return out;
    const Tensor rows = with_rows(logits.dtype() == kF64 ? logits.to(kF32) : logits),
                 dense_temperature = temperature.contiguous(), dense_k = top_k.contiguous(),
                 dense_p = top_p.contiguous(), dense_uniform = uniform.contiguous();
    backend(logits).tokens->sample(
        {array(out), array(rows), array(dense_temperature), array(dense_k), array(dense_p), array(dense_uniform)},
        current_stream(logits.device()));
    return out;
  });
}

Tensor repetition_penalty(const Tensor& logits, const Tensor& seen, const Tensor& slots, const Tensor& penalty) {
  const Running running("repetition_penalty");
  require_logits(logits);
  require_defined(seen, "seen");
  require_same_device(seen, logits);
  require<DTypeError>(seen.dtype() == kBool, "seen is not bool; got {}", seen);
  require<ShapeError>(seen.dim() == 2 && seen.size(1) == logits.size(1),
                      "seen does not fit; got {} for logits: {}; expected [sequences, {}]", seen, logits,
                      logits.size(1));
  require_setting(slots, "slots", kI32, logits);
  require_setting(penalty, "penalty", kF32, logits);
  return door::call(Op::repetition_penalty, {&logits, &seen, &slots, &penalty}, [&] {
    const Tensor out = empty(logits.sizes(), logits.options());
    if (out.numel() == 0) return out;
    const Tensor rows = with_rows(logits), seen_rows = with_rows(seen), dense_slots = slots.contiguous(),
                 dense_penalty = penalty.contiguous();
    backend(logits).tokens->penalise(
        {array(out), array(rows), array(seen_rows), array(dense_slots), array(dense_penalty)},
        current_stream(logits.device()));
    return out;
  });
}

}  // namespace lorry
