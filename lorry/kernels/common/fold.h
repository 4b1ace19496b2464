#pragma once

// Shared by the reductions of all backends: the formulas of folds, the type of running totals, and the split of
// dimensions into those of the output and those that are reduced.

#include <type_traits>

#include "lorry/kernels/reduce.h"

namespace lorry::kernels {

using formula::fold_identity;
using formula::fold_one;
using formula::Total;

/// The dimensions of a reduction, collapsed into two iterations. `output_dims` runs over the outputs: operand 0 is x,
/// operand 1 the output. `reduced` runs over the elements of x that belong to one output.
struct Axes {
  Iteration output_dims, reduced;
  int64_t outputs, count;  ///< number of outputs, and of elements for each

  /// ordered: `reduced` runs in row-major order.
  Axes(const Layout& x, const Layout& out, bool ordered) {
    Layout output_layouts[2], reduced_layout;
    output_layouts[0].rank = output_layouts[1].rank = reduced_layout.rank = 0;
    const auto append = [](Layout& to, const Layout& from, int d) {
      to.sizes[to.rank] = from.sizes[d];
      to.strides[to.rank++] = from.strides[d];
    };
    for (int d = 0; d < x.rank; ++d) {
      if (x.sizes[d] != out.sizes[d]) {
        append(reduced_layout, x, d);
      } else {
        append(output_layouts[0], x, d);
        append(output_layouts[1], out, d);
      }
    }
    output_dims = collapse(output_layouts, 2);
    reduced = collapse(&reduced_layout, 1, !ordered);
    outputs = output_dims.numel();
    count = reduced.numel();
  }
};

}  // namespace lorry::kernels
