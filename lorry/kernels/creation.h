#pragma once

// Kernels that make values out of nothing but their position.

#include "lorry/device/stream.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

struct CreationKernels {
  /// out[i] = start + i step, in 64-bit integers for integral types and in f64 for floating ones. Contiguous.
  void (*arange_integral)(const Array& out, int64_t start, int64_t step, Stream stream);
  void (*arange_floating)(const Array& out, double start, double step, Stream stream);
  /// `out.numel()` values from start to end, both included, spaced evenly; the second half is counted back from the end, so that
  /// both ends are exact. Contiguous, any dtype: integral types truncate.
  void (*linspace)(const Array& out, double start, double end, Stream stream);
  /// out = x where column - row <= diagonal (lower) or >= diagonal (upper), else 0. The last two dimensions are rows and columns;
  /// `out` is contiguous, x has the same sizes and dtype and any strides.
  void (*triangle)(const Array& out, const Array& x, int64_t diagonal, bool upper, Stream stream);
};

namespace cpu {
extern const CreationKernels kCreationKernels;
}

}  // namespace lorry::kernels
