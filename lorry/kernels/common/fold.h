#pragma once

// What the reductions of every device share: the folds of two values with their identities, the type totals are carried
// in, and the two walks (over kept and over reduced dimensions) that a reduction is.

#include <limits>
#include <type_traits>

#include "lorry/base/macros.h"
#include "lorry/kernels/reduce.h"

namespace lorry::kernels {

/// What totals are carried in between runs of a compute type: f64 for f32, so that long sums stay accurate.
template <class C>
using Total = std::conditional_t<std::is_same_v<C, float>, double, C>;

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

template <class T>
LORRY_INLINE T fold_one(Fold fold, T a, T b) {
  switch (fold) {
    case Fold::sum:
      return fold_one<Fold::sum>(a, b);
    case Fold::prod:
      return fold_one<Fold::prod>(a, b);
    case Fold::max:
      return fold_one<Fold::max>(a, b);
    case Fold::min:
      break;
  }
  return fold_one<Fold::min>(a, b);
}

/// Kept and reduced dimensions, collapsed apart. Operand 0 of `kept` is x and operand 1 the output; `reduced` walks x.
struct Axes {
  Iteration kept, reduced;
  int64_t outputs, count;

  /// `ordered`: positions among the reduced elements count in row-major order.
  Axes(const Layout& x, const Layout& out, bool ordered) {
    Layout keeps[2], reduces;
    keeps[0].rank = keeps[1].rank = reduces.rank = 0;
    const auto append = [](Layout& to, const Layout& from, int d) {
      to.sizes[to.rank] = from.sizes[d];
      to.strides[to.rank++] = from.strides[d];
    };
    for (int d = 0; d < x.rank; ++d) {
      if (x.sizes[d] != out.sizes[d]) {
        append(reduces, x, d);
      } else {
        append(keeps[0], x, d);
        append(keeps[1], out, d);
      }
    }
    kept = collapse(keeps, 2);
    reduced = collapse(&reduces, 1, !ordered);
    outputs = kept.numel();
    count = reduced.numel();
  }
};

}  // namespace lorry::kernels
