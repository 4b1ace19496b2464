#pragma once

// Conversions between f32 and compressed elements, of n elements; n is at most one block of 8-bit codes. Compiled once
// for each instruction set.

#include <cstdint>

namespace lorry::kernels::cpu {

struct CompressedRuns {
  /// 8-bit codes: [0] without a sign, for numbers >= 0, and [1] with one. `encode` returns the scale.
  void (*decode[2])(const uint8_t* codes, float scale, float* to, int64_t n);
  float (*encode[2])(const float* from, uint8_t* codes, int64_t n);
  /// Rounds to bf16 stochastically. `random` has 16 bits per element, in the order of memory.
  void (*round)(const float* from, const uint32_t* random, uint16_t* to, int64_t n);
  /// The halves of formula/split.h.
  void (*join)(const uint16_t* upper, const uint16_t* lower, float* to, int64_t n);
  void (*split)(const float* from, uint16_t* upper, uint16_t* lower, int64_t n);
};

/// The functions for this processor's instruction set.
const CompressedRuns& compressed_runs();

}  // namespace lorry::kernels::cpu
