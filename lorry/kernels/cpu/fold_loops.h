#pragma once

// The vector loops of the reductions: four folds over contiguous memory for the three compute types.

#include <limits>
#include <type_traits>

#include "lorry/base/macros.h"
#include "lorry/kernels/reduce.h"

namespace lorry::kernels::cpu {

/// What totals are carried in between runs of a compute type: f64 for f32, so that long sums stay accurate.
template <class C>
using Total = std::conditional_t<std::is_same_v<C, float>, double, C>;

template <class C>
struct FoldLoops {
  /// The fold of n contiguous elements: fixed lanes, combined in a fixed tree whatever the vector width.
  Total<C> (*row)(const C* x, int64_t n);
  /// acc[i] = fold(acc[i], x[r * stride + i]) for the rows r in order.
  void (*column)(C* acc, const C* x, int64_t stride, int64_t rows, int64_t n);
};

/// The loops for this processor. C is float, double or int64_t.
template <class C>
const FoldLoops<C>& fold_loops(Fold fold);

template <class T>
constexpr T fold_identity(Fold fold) {
  using Limits = std::numeric_limits<T>;
  switch (fold) {
    case Fold::sum:
      return T(0);
    case Fold::prod:
      return T(1);
    case Fold::max:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case Fold::min:
      break;
  }
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

/// The scalar folds. Whole numbers wrap around; a NaN, once met, stays.
template <Fold kFold, class T>
LORRY_INLINE T fold_one(T a, T b) {
  if constexpr (kFold == Fold::max) return b > a || b != b ? b : a;
  if constexpr (kFold == Fold::min) return b < a || b != b ? b : a;
  using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  if constexpr (kFold == Fold::sum) return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  if constexpr (kFold == Fold::prod) return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
}

}  // namespace lorry::kernels::cpu
