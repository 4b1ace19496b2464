#include "lorry/ops/tokens.h"

#include <array>

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

void require_sequence_part(const Tensor& x, const char* name, DType dtype, const Tensor& next, int64_t rank) {
  require_defined(x, name);
  require_same_device(x, next);
  require<DTypeError>(x.dtype() == dtype, "{} has another dtype; got {}; expected {}", name, x, dtype);
  require<ShapeError>(x.dim() == rank && x.size(0) == next.size(0),
                      "{} does not fit; got {} for next: {}; expected {} dimensions, the first of size {}", name, x,
                      next, rank, next.size(0));
}

void require_sequences(const SequenceRows& rows, const Tensor& next) {
  require_defined(next, "next");
  require<DTypeError>(next.dtype() == kI64, "next is not i64; got {}", next);
  require<ShapeError>(next.dim() == 1, "next is no vector; got {}; expected a token for each row", next);
  require_sequence_part(rows.tokens, "tokens", kI64, next, 1);
  require_sequence_part(rows.positions, "positions", kI32, next, 1);
  require_sequence_part(rows.slots, "slots", kI32, next, 1);
  require_sequence_part(rows.drawn, "drawn", kI64, next, 1);
  require_sequence_part(rows.uniform, "uniform", kF64, next, 1);
  require_sequence_part(rows.outputs, "outputs", kI64, next, 2);
  require_sequence_part(rows.limits, "limits", kI64, next, 1);
  require_sequence_part(rows.keys, "keys", kI64, next, 2);
  require_sequence_part(rows.stops, "stops", kI64, next, 3);
  require<ShapeError>(rows.keys.size(1) == 2, "keys do not fit; got {}; expected [{}, 2]", rows.keys, next.size(0));
  require<ShapeError>(rows.outputs.size(1) > 0 && rows.stops.size(2) <= rows.outputs.size(1),
                      "outputs hold too few tokens; got {} for stops: {}; expected at least one column, and as many as "
                      "the longest run",
                      rows.outputs, rows.stops);
  require_defined(rows.seen, "seen");
  require_same_device(rows.seen, next);
  require<DTypeError>(rows.seen.dtype() == kBool, "seen is not bool; got {}", rows.seen);
  require<ShapeError>(rows.seen.dim() == 2, "seen is no matrix; got {}; expected [sequences, vocab], or [0, 0]",
                      rows.seen);
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

void advance_sequences(const SequenceRows& rows, const Tensor& next) {
  const Running running("advance_sequences");
  require_sequences(rows, next);
  const std::array written{rows.tokens, rows.positions, rows.slots, rows.drawn, rows.uniform, rows.outputs, rows.seen};
  for (const Tensor& x : written) door::require_writable(x);
  door::call_into(Op::advance_sequences, true, written,
                  {&rows.tokens, &rows.positions, &rows.slots, &rows.drawn, &rows.uniform, &rows.outputs, &rows.seen,
                   &rows.limits, &rows.keys, &rows.stops, &next},
                  [&] {
                    if (next.numel() == 0) return;
                    backend(next).tokens->advance(
                        {array(next), array(rows.tokens), array(rows.positions), array(rows.slots), array(rows.drawn),
                         array(rows.uniform), array(rows.outputs), array(rows.seen), array(rows.limits),
                         array(rows.keys), array(rows.stops)},
                        current_stream(next.device()));
                  });
}

}  // namespace lorry
