#pragma once

// From logits to tokens: the penalty of tokens that were seen, and the draw of the next one.

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

struct TokenKernels {
  /// The tokens are the same on all devices. For a row whose logits are all NaN or -infinity the CPU throws ValueError;
  /// CUDA reports it (device/cuda/device_assert.h) and gives 0.
  void (*sample)(const TokenSampling&, Stream);
  /// For a slot that does not exist the CPU throws IndexError; CUDA reports it and copies the row.
  void (*penalise)(const TokenPenalty&, Stream);
};

}  // namespace lorry::kernels
