#pragma once

// Kernels that compute each element by itself: operators, copies and fills, values from positions.

#include "lorry/device/stream.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

// ---- pointwise ------------------------------------------------------------------------------------------------------

// Pointwise kernels: one call for every row of formula/pointwise.def, any element types, any strides, broadcast
// operands.

/// An operand: a tensor's memory, or one number of the host, which lives until the call returns.
struct PointwiseOperand {
  void* data = nullptr;            ///< the address of the first element, or of the number
  const Layout* layout = nullptr;  ///< null for a number
  DType dtype = kF32;
  bool contiguous = false;  ///< layout->is_contiguous(), known beforehand
};

struct PointwiseCall {
  Pointwise op;
  DType compute;  ///< kF32, kF64 or kI64: operands are converted to it, the result from it
  int arity;
  PointwiseOperand out;
  PointwiseOperand in[4];  ///< shapes broadcast to that of `out`; each is `out` itself or shares no memory with it
};

struct PointwiseKernels {
  void (*run)(const PointwiseCall& call, Stream stream);
  /// True when an integer divisor holds a zero, which formulas do not divide by. May answer false where asking would
  /// wait for the device.
  bool (*has_zero)(const Array& x, Stream stream);
};

// ---- copy -----------------------------------------------------------------------------------------------------------

// Copies between any two layouts and element types of one device. Conversions: see kernels/common/convert.h.

struct CopyKernels {
  /// Equal sizes; the arrays are the same elements or share none. A stride of 0 in `from` repeats an element; a
  /// negative one (flip) walks backwards from `data`.
  void (*copy)(const Array& to, const Array& from, Stream stream);
  /// Every element of `to` becomes the number at `value`, of type `dtype`, in host memory.
  void (*fill)(const Array& to, const void* value, DType dtype, Stream stream);
};

// ---- creation -------------------------------------------------------------------------------------------------------

// Kernels that make values out of nothing but their position.

struct CreationKernels {
  /// out[i] = start + i step, in 64-bit integers for integral types and in f64 for floating ones. Contiguous.
  void (*arange_integral)(const Array& out, int64_t start, int64_t step, Stream stream);
  void (*arange_floating)(const Array& out, double start, double step, Stream stream);
  /// `out.numel()` values from start to end, both included, spaced evenly; the second half is counted back from the
  /// end, so that both ends are exact. Contiguous, any dtype: integral types truncate.
  void (*linspace)(const Array& out, double start, double end, Stream stream);
  /// out = x where column - row <= diagonal (lower) or >= diagonal (upper), else 0. The last two dimensions are rows
  /// and columns; `out` is contiguous, x has the same sizes and dtype and any strides.
  void (*triangle)(const Array& out, const Array& x, int64_t diagonal, bool upper, Stream stream);
};

namespace cpu {
extern const CreationKernels kCreationKernels;
}

}  // namespace lorry::kernels
