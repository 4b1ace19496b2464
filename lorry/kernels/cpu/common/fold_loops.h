#pragma once

// The vector loops of the reductions: four folds over contiguous memory for the three compute types.

#include "lorry/kernels/common/fold.h"

namespace lorry::kernels::cpu {

template <class C>
struct FoldLoops {
  /// The fold of n contiguous elements: a fixed number of lanes, combined in a fixed tree for any vector width.
  Total<C> (*row)(const C* x, int64_t n);
  /// acc[i] = fold(acc[i], x[r * stride + i]) for the rows r, in order.
  void (*column)(C* acc, const C* x, int64_t stride, int64_t rows, int64_t n);
  /// Copies n elements that lie 0 <= stride <= kMostStride apart.
  void (*take)(C* to, const C* x, int64_t stride, int64_t n);
  /// The position of the first element that equals `value` or is a NaN; n if there is none.
  int64_t (*find)(const C* x, int64_t n, C value);
};
inline constexpr int64_t kMostStride = 1 << 26;

/// The loops for this processor. C is float, double or int64_t.
template <class C>
const FoldLoops<C>& fold_loops(Fold fold);

/// The fold of kFoldBlock contiguous elements, converted to their compute type and mapped: what FoldLoops::row gives
/// for them. A f64 holds the total of floats.
using BlockFold = double (*)(const void* x);
inline constexpr int64_t kFoldBlock = 1024;

/// Null: there is no such loop.
BlockFold block_fold(Fold fold, Map map, DType dtype);

}  // namespace lorry::kernels::cpu
