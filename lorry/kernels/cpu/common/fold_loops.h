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
};

/// The loops for this processor. C is float, double or int64_t.
template <class C>
const FoldLoops<C>& fold_loops(Fold fold);

}  // namespace lorry::kernels::cpu
