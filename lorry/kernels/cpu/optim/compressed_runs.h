#pragma once

// Elements between f32 and the forms in which they are stored, n of them, at most a block of 8-bit codes; compiled once
// for each instruction set.

#include <cstdint>

namespace lorry::kernels::cpu {

struct CompressedRuns {
  /// 8-bit codes. [0] of numbers >= 0, [1] with a sign. `encode` returns their scale.
  void (*decode[2])(const uint8_t* codes, float scale, float* to, int64_t n);
  float (*encode[2])(const float* from, uint8_t* codes, int64_t n);
  /// To bf16, stochastically: `random` has 16 bits an element, as blocks of words lie in memory.
  void (*round)(const float* from, const uint32_t* random, uint16_t* to, int64_t n);
  /// The halves of formula/split.h.
  void (*join)(const uint16_t* upper, const uint16_t* lower, float* to, int64_t n);
  void (*split)(const float* from, uint16_t* upper, uint16_t* lower, int64_t n);
};

/// The functions for the instruction set of this process.
const CompressedRuns& compressed_runs();

}  // namespace lorry::kernels::cpu
