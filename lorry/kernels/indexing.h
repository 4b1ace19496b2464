#pragma once

// Reading and writing at computed positions. gather, index_select, index and masked_select are one kernel, `take`;
// scatter, index_add, index_copy and index_put are one, `put`. The operators bring every form to one shape with views.
//
//   take:  out[c]                               = source[c][wrap(index[c]) * step]
//   put:   target[c][wrap(index[c]) * step] (op)= source[c]
//
// c runs over the shape that all operands share. The indexed operand has stride 0 in the indexed dimensions; `step` is
// the distance, in elements, between neighbours along the indexed dimension. Indices are i64; wrap adds `size` to
// negative indices.
//
// Invalid indices. On the CPU `check` finds them before anything is read or written, and the other kernels trust every
// index. On a device that runs asynchronously, `check` would have to wait for it; there it reports no error, and the
// other kernels check each index as they use it. For an invalid one they read 0 or skip the write, and the next call
// that launches or waits throws IndexError.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// How `put` combines the target's element with the source's. Maximum and minimum propagate NaN.
enum class Combine : uint8_t { assign, add, multiply, maximum, minimum };

/// What a negative index means, for kernels that check indices.
enum class Negative : uint8_t {
  wrong,    ///< invalid
  wraps,    ///< counted from the end
  skipped,  ///< written by `flatten`, which has reported it already; ignored
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
  /// add, 16-bit floats: what is added to an element is summed in f32 and rounded; then it is added. Only if
  /// `put_rounds_once` says so.
  bool rounds_once = false;
};

/// An index that lies outside [-size, size).
struct OutOfRange {
  int64_t position = -1;  ///< in row-major order; -1 if every index is valid
  int64_t value = 0;
};

/// One of several index arrays that together select an element.
struct IndexTerm {
  Array index;
  int64_t size = 0;
  int64_t step = 0;
};

struct NonzeroArgs {
  Array out;  ///< i64 [rows, rank of x], contiguous
  Array x;    ///< contiguous
  /// Where the number of elements that are not zero goes. Null: not wanted; there are as many as `out` has rows.
  int64_t* count = nullptr;
  int64_t fill = 0;
};

struct IndexingKernels {
  /// The first index outside [low, high). On a device that runs asynchronously: always none, without waiting.
  OutOfRange (*check)(const Array& index, int64_t low, int64_t high, Stream stream);
  /// out[c] = the sum of wrap(index_k[c]) * step_k over `count` terms. Kernels that check indices write -1 if one is
  /// outside [-size_k, size_k). `out` is i64 and contiguous.
  void (*flatten)(const Array& out, const IndexTerm* terms, int count, Stream stream);
  void (*take)(const TakeArgs& args, Stream stream);
  /// Elements with the same position are combined in row-major order, for any number of threads. The target must not
  /// overlap itself (except in the indexed dimensions) nor the source.
  void (*put)(const PutArgs& args, Stream stream);
  /// The number of elements of the contiguous x that are not zero. Waits for the device.
  int64_t (*count_nonzero)(const Array& x, Stream stream);
  /// The coordinates of the elements of x that are not zero, in row-major order: as many as `out` has rows. Rows that
  /// are left are filled with `fill`. Does not wait for the device.
  void (*nonzero)(const NonzeroArgs& args, Stream stream);
  /// Writes i counts[i] times, for each i in order. Both i64 and contiguous; the counts are not negative and sum to
  /// out.numel().
  void (*repeat_positions)(const Array& out, const Array& counts, Stream stream);
  /// Whether put() with so many indices supports PutArgs::rounds_once. Null: never.
  bool (*put_rounds_once)(int64_t indices) = nullptr;
  /// take() that checks each index as it reads it, instead of after `check`. False: the elements of `out` are
  /// undefined, and `check` says whether an index lies outside [low, args.size); low is 0 or -args.size. Null: there
  /// is only take().
  bool (*take_checked)(const TakeArgs& args, int64_t low, Stream stream) = nullptr;
  /// put() into a target that nobody else sees, which checks each index as it reads it, instead of after `check`.
  /// False: `check` says whether an index lies outside [0, args.size), and then the elements of the target are
  /// undefined; if none does, nothing was written, and there is put(). Null: there is only put().
  bool (*put_checked)(const PutArgs& args, Stream stream) = nullptr;
};

}  // namespace lorry::kernels
