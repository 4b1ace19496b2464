#pragma once

// Sorting along the last dimension of contiguous rows. A NaN counts as greater than every number, -0 equals 0, and
// equals keep their order, so that every result is determined.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

struct SortKernels {
  /// values (dtype of x) and indices (i64) of the sizes of x, all contiguous [..., n].
  void (*sort)(const Array& values, const Array& indices, const Array& x, bool descending, const Stream&) = nullptr;
  /// The first k of each row in sorted order: values and indices are contiguous [..., k].
  void (*topk)(const Array& values, const Array& indices, const Array& x, bool largest, const Stream&) = nullptr;
  /// From a sorted row of n and the positions it came from: writes the distinct values, for every original position its
  /// rank among them, and how often each occurs (inverse and counts may be absent); returns how many there are. NaNs
  /// are distinct.
  int64_t (*unique)(const Array& values, const Array& inverse, const Array& counts, const Array& sorted,
                    const Array& order, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
