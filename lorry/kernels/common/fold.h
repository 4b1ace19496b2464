#pragma once

// What the reductions of every device share: the formulas of folds, the type totals are carried in, and the two walks
// (over kept and over reduced dimensions) that a reduction is.

#include <type_traits>

#include "lorry/kernels/reduce.h"

namespace lorry::kernels {

/// What totals are carried in between runs of a compute type: f64 for f32, so that long sums stay accurate.
template <class C>
using Total = std::conditional_t<std::is_same_v<C, float>, double, C>;

using formula::fold_identity;
using formula::fold_one;

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
