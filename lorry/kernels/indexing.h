#pragma once

// Reading and writing at computed positions. gather, index_select, index and masked_select are one kernel, `take`;
// scatter, index_add, index_copy and index_put are one, `put`: the operators bring every form to one shape by views.
//
//   take:  out[c]                               = source[c][wrap(index[c]) * step]
//   put:   target[c][wrap(index[c]) * step] (op)= source[c]
//
// c runs over one shape that all operands share. The indexed operand has stride 0 in the dimensions that are indexed,
// and `step` is the distance, in elements, between neighbours along the indexed one. Indices are i64; wrap adds `size`
// to negative ones.
//
// Who finds a bad index: on the CPU `check`, before anything is read or written, and the other kernels trust every
// index. A device that runs behind the host must not be waited for just to look: there `check` answers at once that all
// is well, and the kernels look at each index as they meet it. A bad one reads 0 or is not written, and IndexError
// comes from the next call that launches or waits.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// How `put` combines what is there with what comes. Both extremes keep a NaN.
enum class Combine : uint8_t { assign, add, multiply, maximum, minimum };

/// What an index below 0 is, for kernels that look.
enum class Negative : uint8_t {
  wrong,    ///< as bad as one that is too large
  wraps,    ///< counted from the end
  skipped,  ///< left by `flatten`, which has complained about it
};

struct TakeArgs {
  Array out, source, index;
  int64_t size = 0;
  int64_t step = 0;
  Negative negative = Negative::wrong;
};

struct PutArgs {
  Array target, source, index;
  int64_t size = 0;
  int64_t step = 0;
  Combine combine = Combine::assign;
  Negative negative = Negative::wrong;
};

/// An index that lies outside [-size, size).
struct OutOfRange {
  int64_t position = -1;  ///< in row-major order; -1 when every index is inside
  int64_t value = 0;
};

/// One of several index arrays that together name an element.
struct IndexTerm {
  Array index;
  int64_t size = 0;
  int64_t step = 0;
};

struct IndexingKernels {
  /// The first index outside [low, high); on a device that runs behind the host none, at once.
  OutOfRange (*check)(const Array& index, int64_t low, int64_t high, Stream stream);
  /// out[c] = the sum of wrap(index_k[c]) * step_k over `count` terms, or -1 where a kernel that looks finds one
  /// outside [-size_k, size_k). `out` is i64 and contiguous.
  void (*flatten)(const Array& out, const IndexTerm* terms, int count, Stream stream);
  void (*take)(const TakeArgs& args, Stream stream);
  /// Equal positions are combined in row-major order of their dimension, whatever the number of threads. The target
  /// overlaps neither itself (but for the indexed dimensions) nor the source.
  void (*put)(const PutArgs& args, Stream stream);
  /// The number of elements of the contiguous x that are not zero. Waits for the device.
  int64_t (*count_nonzero)(const Array& x, Stream stream);
  /// The positions of the elements of the contiguous x that are not zero, in row-major order: `out` is i64 [count,
  /// rank], contiguous, or [count] for the row-major position itself.
  void (*nonzero)(const Array& out, const Array& x, Stream stream);
  /// Writes i counts[i] times, for each i in order. Both i64 and contiguous; the counts are not negative and sum to
  /// out.numel().
  void (*repeat_positions)(const Array& out, const Array& counts, Stream stream);
};

}  // namespace lorry::kernels
