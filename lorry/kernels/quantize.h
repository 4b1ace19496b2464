#pragma once

// Quantisation: floating elements as codes of one byte, and back. The formulas are formula/codes.h and
// formula/quantize.h. Every element is read once and written once; values are converted to f32 first.

#include "lorry/device/stream.h"
#include "lorry/formula/code_format.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

using formula::CodeFormat;

/// Codes with a scale for each of `channels`. codes and x: contiguous [rows, channels, length]; codes i8 or u8, x
/// floating.
struct LinearCodes {
  Array codes, x;
  float* scale = nullptr;         ///< [channels]; null: 1
  int32_t* zero_point = nullptr;  ///< [channels]; null: 0
  CodeFormat format = CodeFormat::int8;
};

/// Block-wise codes of the dynamic map, with a sign (formula/quantize.h). All contiguous: codes u8 [n], scales f32, one
/// for each block of formula::kQuantBlock elements, x floating [n].
struct BlockCodes {
  Array codes, scales, x;
};

struct QuantizeKernels {
  void (*quantize)(const LinearCodes&, Stream) = nullptr;          ///< writes codes
  void (*dequantize)(const LinearCodes&, Stream) = nullptr;        ///< writes x
  void (*quantize_blocks)(const BlockCodes&, Stream) = nullptr;    ///< writes codes and scales
  void (*dequantize_blocks)(const BlockCodes&, Stream) = nullptr;  ///< writes x
};

}  // namespace lorry::kernels
