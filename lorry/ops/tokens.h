#pragma once

// From a model's logits to the next tokens. All settings are tensors with an entry per row, read on the device: rows
// may differ, and a captured step can be replayed with others.

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Draws a token from each row of logits: from softmax(logits / temperature), restricted to the top_k most likely, then
/// to the smallest set of most likely ones with the fraction top_p of their total probability (Holtzman et al. 2020).
/// Equal logits: the lower token first. Tokens whose logit is NaN or -infinity are never drawn; infinite logits are
/// certain. uniform decides: the draw is the first token, the likeliest first, with which the summed probability
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

}  // namespace lorry
