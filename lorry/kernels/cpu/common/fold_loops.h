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

/// Folds of elements that are converted to their compute type and mapped on the way. A f64 holds the total of floats.
struct FoldFrom {
  /// The fold of n contiguous elements: what FoldLoops::row gives for them.
  double (*row)(const void* x, int64_t n) = nullptr;
  /// cells[i] = fold(cells[i], the fold of x[r * stride + i] over the rows r, in order).
  void (*columns)(double* cells, const void* x, int64_t stride, int64_t rows, int64_t n) = nullptr;
};

/// Null where there is no such loop.
FoldFrom fold_from(Fold fold, Map map, DType dtype);

/// FoldLoops::row folds rows of up to so many elements one by one, in the type of the total.
inline constexpr int64_t kFoldedSingly = 16;

/// A multiple of the elements that the loops over rows add up in the compute type.
inline constexpr int64_t kFoldBlock = 1024;

/// The sum of the products of n contiguous elements: those of kDotRun elements are added in their compute type C, and
/// the sums of runs in f64, in order. The products of few elements are added in f64.
using DotLoop = double (*)(const void* a, const void* b, int64_t n);
template <class C>
inline constexpr int64_t kDotRun = 4096 / sizeof(C);

/// Null: there is no such loop. There always is for f32 and f64.
DotLoop dot_loop(DType dtype);

}  // namespace lorry::kernels::cpu
