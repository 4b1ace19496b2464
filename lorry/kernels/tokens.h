#pragma once

// From logits to tokens: the penalty of tokens that were seen, the draw of the next one, and what a sequence does with
// it.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// The most logits of a row: sums of their weights fit 64 bits (formula/tokens.h).
inline constexpr int64_t kMostTokens = int64_t{1} << 20;

/// Draws a token per row. All contiguous, but the rows of the logits may have any distance.
struct TokenSampling {
  Array out;          ///< [n] i64
  Array logits;       ///< [n, vocab] f16, bf16 or f32, last stride 1, vocab from 1 to kMostTokens
  Array temperature;  ///< [n] f32; what is not above 0 takes the likeliest token
  Array top_k;        ///< [n] i32; what is not above 0 takes all
  Array top_p;        ///< [n] f32; what is not below 1 takes all
  Array uniform;      ///< [n] f64 in [0, 1)
};

/// out[i] = the logits of row i; those of tokens that sequence slots[i] has seen are divided by the penalty if above 0,
/// else multiplied by it.
struct TokenPenalty {
  Array out;      ///< contiguous [n, vocab]
  Array logits;   ///< [n, vocab], floating, last stride 1
  Array seen;     ///< [sequences, vocab] bool, last stride 1
  Array slots;    ///< contiguous [n] i32; a negative slot has seen nothing
  Array penalty;  ///< contiguous [n] f32
};

/// Takes up one drawn token a row (ops/tokens.h). Any strides. Rows with a negative slot stay as they are.
struct SequenceAdvance {
  Array next;       ///< [n] i64
  Array tokens;     ///< [n] i64, written, as what follows
  Array positions;  ///< [n] i32
  Array slots;      ///< [n] i32
  Array drawn;      ///< [n] i64
  Array uniform;    ///< [n] f64
  Array outputs;    ///< [n, w] i64
  Array seen;       ///< [sequences, vocab] bool; [0, 0]: none
  Array limits;     ///< [n] i64, read, as what follows
  Array keys;       ///< [n, 2] i64
  Array stops;      ///< [n, m, l] i64
};

struct TokenKernels {
  /// The tokens are the same on all devices. For a row whose logits are all NaN or -infinity the CPU throws ValueError;
  /// CUDA reports it (device/cuda/device_assert.h) and gives 0.
  void (*sample)(const TokenSampling&, Stream);
  /// For a slot that does not exist the CPU throws IndexError; CUDA reports it and copies the row.
  void (*penalise)(const TokenPenalty&, Stream);
  /// For a slot or token that `seen` lacks the CPU throws IndexError, before anything is written; CUDA reports it and
  /// leaves the row.
  void (*advance)(const SequenceAdvance&, Stream);
};

}  // namespace lorry::kernels
