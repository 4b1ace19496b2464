#pragma once

// Kernels that compute each element independently: operators, copies and fills, values computed from positions.

#include <span>

#include "lorry/device/stream.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

// ---- pointwise ------------------------------------------------------------------------------------------------------

// Pointwise operators: one call runs any row of formula/pointwise.def, with any element types, any strides and
// broadcast operands.

/// An operand: a tensor's memory, or one number in host memory that is valid until the call returns.
struct PointwiseOperand {
  void* data = nullptr;            ///< the address of the first element, or of the number
  const Layout* layout = nullptr;  ///< null for a number
  DType dtype = kF32;
  bool contiguous = false;  ///< layout->is_contiguous()
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
  /// Whether an integer divisor contains a zero, which the formulas do not handle. May return false if the answer would
  /// require waiting for the device.
  bool (*has_zero)(const Array& x, Stream stream);
};

// ---- copy -----------------------------------------------------------------------------------------------------------

// Copies between any two layouts and element types of one device. Conversions: see kernels/common/convert.h.

struct CopyKernels {
  /// Sizes are equal; the arrays have the same elements or share none. A stride of 0 in `from` repeats an element; a
  /// negative one (flip) goes backwards from `data`.
  void (*copy)(const Array& to, const Array& from, Stream stream);
  /// Sets every element of `to` to the number at `value`, of type `dtype`, in host memory.
  void (*fill)(const Array& to, const void* value, DType dtype, Stream stream);
  /// Joins matrices along their rows: row r of `to` is row r of from[0], of from[1] and so on. All have one element
  /// type and as many rows; elements of a row are adjacent. Null: the matrices are copied one by one.
  void (*join)(const Array& to, std::span<const Array> from, Stream stream) = nullptr;
};

// ---- creation -------------------------------------------------------------------------------------------------------

// Kernels that compute values from positions.

struct CreationKernels {
  /// out[i] = start + i step, computed in 64-bit integers for integral types and in f64 for floating ones. Contiguous.
  void (*arange_integral)(const Array& out, int64_t start, int64_t step, Stream stream);
  void (*arange_floating)(const Array& out, double start, double step, Stream stream);
  /// `out.numel()` evenly spaced values from start to end, both included. The second half is computed from the end, so
  /// that both ends are exact. Contiguous, any dtype; integral types truncate.
  void (*linspace)(const Array& out, double start, double end, Stream stream);
  /// out = x where column - row <= diagonal (lower) or >= diagonal (upper), else 0. The last two dimensions are rows
  /// and columns; `out` is contiguous, x has the same sizes and dtype and any strides.
  void (*triangle)(const Array& out, const Array& x, int64_t diagonal, bool upper, Stream stream);
};

}  // namespace lorry::kernels
