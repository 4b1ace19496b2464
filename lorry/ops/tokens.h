#pragma once

// From a model's logits to the next tokens. All settings are tensors with an entry per row, read on the device: rows
// may differ, and a captured step can be replayed with others.

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Draws a token from each row of logits: from softmax(logits / temperature), restricted to the top_k most likely, then
/// to the smallest set of most likely ones with the fraction top_p of their total probability (Holtzman et al. 2020).
/// Equal logits: the lower token first. Tokens whose logit is NaN or -infinity are never drawn; infinite logits are
/// certain. uniform decides: the draw is the first of the tokens left, by index, with which their summed probability
/// exceeds the uniform.
/// logits: [n, vocab] floating, f64 rounded to f32, vocab from 1 to 1,048,576. temperature: [n] f32; what is not above
/// 0 takes the likeliest token. top_k: [n] i32; 0 or less: all. top_p: [n] f32; 1 or more: all. uniform: [n] f64 in [0,
/// 1), as rand makes it. Returns [n] i64.
/// A token's weight is 2^32 exp((logit - largest) / temperature), rounded to an integer. Sums of integers are exact, so
/// all devices draw the same token; tokens less likely than the likeliest by a factor of 2^33 are never drawn.
/// A row whose logits are all NaN or -infinity: on the CPU a ValueError; on a GPU the row's token is 0, and the next
/// call throws it. Throws ShapeError, DTypeError, DeviceError, ValueError, and GradError if a gradient would be needed.
Tensor sample_tokens(const Tensor& logits, const Tensor& temperature, const Tensor& top_k, const Tensor& top_p,
                     const Tensor& uniform);

/// The logits with those of tokens that a row's sequence has seen made less likely: divided by the penalty if above 0,
/// else multiplied by it (Keskar et al. 2019, section 4.1). A penalty of 1 changes nothing.
/// logits: [n, vocab] floating; seen: [sequences, vocab] bool; slots: [n] i32, the sequence of each row, negative for a
/// padding row, which is copied; penalty: [n] f32. Returns [n, vocab] in the logits' dtype; 16-bit elements are
/// computed in f32 and rounded once.
/// A slot that does not exist: on the CPU an IndexError; on a GPU the row is copied, and the next call throws it.
/// Throws ShapeError, DTypeError, DeviceError, ValueError, and GradError if a gradient would be needed.
Tensor repetition_penalty(const Tensor& logits, const Tensor& seen, const Tensor& slots, const Tensor& penalty);

/// What a loop that generates knows of its sequences, on the device: row i is what the next step reads of one sequence.
struct SequenceRows {
  Tensor tokens;     ///< [n] i64: the last token
  Tensor positions;  ///< [n] i32: its position
  Tensor slots;      ///< [n] i32: the sequence; negative: a padding row, or a sequence that has ended
  Tensor drawn;      ///< [n] i64: how many tokens were drawn
  Tensor uniform;    ///< [n] f64: decides the next draw (sample_tokens)
  Tensor outputs;    ///< [n, w] i64, w at least 1: the last w tokens that were drawn, the k-th in column k % w
  Tensor seen;       ///< [sequences, vocab] bool: which tokens were drawn, or stood in the prompt; [0, 0]: not wanted
  Tensor limits;     ///< [n] i64: a sequence ends when so many tokens are drawn
  /// [n, 2] i64: where uniforms come from. That of draw k is the f64 of block keys[i, 1] of the draw with seed keys[i,
  /// 0] and offset k (formula/philox.h).
  Tensor keys;
  /// [n, m, l] i64, l at most w: a sequence ends behind any of these m runs of tokens. Shorter runs are preceded by
  /// negative numbers; a run of nothing else is none.
  Tensor stops;
};

/// Takes up the tokens that a step has drawn, in place: writes tokens, outputs and seen, counts drawn and positions,
/// makes the next uniform. A sequence that ends gets a negative slot and position 0, so it is padding in the next step:
/// the host need not look. Padding rows stay as they are.
/// next: [n] i64. All contiguous or not, on one device.
/// A slot or a token that `seen` lacks: on the CPU an IndexError, before anything is written; on a GPU the row stays as
/// it is, and the next call throws it. Throws ShapeError, DTypeError, DeviceError, ValueError.
void advance_sequences(const SequenceRows& rows, const Tensor& next);

}  // namespace lorry
