#pragma once

// Copies between any two layouts and element types of one device. Conversions: see kernels/cpu/convert.h.

#include "lorry/device/stream.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

struct CopyKernels {
  /// Equal sizes; the arrays are the same elements or share none. A stride of 0 in `from` repeats an element; a negative one (flip) walks
  /// backwards from `data`.
  void (*copy)(const Array& to, const Array& from, Stream stream);
  /// Every element of `to` becomes the number at `value`, of type `dtype`, in host memory.
  void (*fill)(const Array& to, const void* value, DType dtype, Stream stream);
};

}  // namespace lorry::kernels
