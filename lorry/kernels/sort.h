#pragma once

// Sorting along the last dimension of contiguous rows. The result is fully determined: NaN is greater than every
// number, -0 equals 0, and equal elements keep their order.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// Rows have fewer than 2^32 elements.
struct SortKernels {
  /// values (dtype of x) and indices (i64) of the sizes of x, all contiguous [..., n].
  void (*sort)(const Array& values, const Array& indices, const Array& x, bool descending, const Stream&) = nullptr;
  /// The first k of each row in sorted order: values and indices are contiguous [..., k].
  void (*topk)(const Array& values, const Array& indices, const Array& x, bool largest, const Stream&) = nullptr;
  /// From a contiguous row of n elements: writes the distinct values in ascending order, for every element the index of
  /// its value among them, and how often each value occurs (inverse and counts may be absent). Returns the number of
  /// distinct values. All NaNs are distinct.
  int64_t (*unique)(const Array& values, const Array& inverse, const Array& counts, const Array& x,
                    const Stream&) = nullptr;
};

}  // namespace lorry::kernels
