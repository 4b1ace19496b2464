#pragma once

// Runs of elements of f32 to codes of one byte and back, compiled once for each instruction set.

#include <cstdint>

#include "lorry/formula/codes.h"

namespace lorry::kernels::cpu {

struct CodeRuns {
  static constexpr int kFormats = 3;

  /// n elements that share a scale. encode takes its inverse. By format (formula::CodeFormat).
  void (*encode[kFormats])(const float* from, uint8_t* to, int64_t n, float inverse, int32_t zero_point);
  void (*decode[kFormats])(const uint8_t* from, float* to, int64_t n, float scale, int32_t zero_point);
  /// n elements with a scale and a zero point each.
  void (*encode_each[kFormats])(const float* from, uint8_t* to, int64_t n, const float* inverse,
                                const int32_t* zero_point);
  void (*decode_each[kFormats])(const uint8_t* from, float* to, int64_t n, const float* scale,
                                const int32_t* zero_point);
};

/// The functions for this processor's instruction set.
const CodeRuns& code_runs();

}  // namespace lorry::kernels::cpu
