#pragma once

// Pointwise kernels: one call for every row of formula/pointwise.def, any element types, any strides, broadcast operands.

#include "lorry/device/stream.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

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
  /// True when an integer divisor holds a zero, which formulas do not divide by. May answer false where asking would wait for the device.
  bool (*has_zero)(const Array& x, Stream stream);
};

}  // namespace lorry::kernels
