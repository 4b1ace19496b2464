#pragma once

// From tensors to one call of the matrix product kernel: operands as (batches of) matrices, copied only where they must
// be.

#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry {

/// Checks what every product asks of its two operands, apart from shapes.
void require_factors(const Tensor& a, const Tensor& b);

/// out = alpha * (a @ b) + beta * c, with shapes already checked. `a` and `b` are matrices as layouts (a vector already
/// given its second dimension) whose batch dimensions expand to out's; c expands to out, and beta 0 or an undefined c
/// adds nothing. `out` may have any strides and may overlap any operand. Its dtype is theirs, or i32 for i8 operands
/// with alpha 1 and no c.
struct Product {
  const Tensor &a, &b;
  Layout a_layout, b_layout;
  const Tensor* c = nullptr;
  Layout c_layout{};
  double alpha = 1, beta = 0;

  /// Into `out`, seen with the sizes [..., m, n].
  void run(const Tensor& out, const Layout& out_layout) const;
};

/// x's layout with one dimension more: a vector as a row or as a column.
Layout as_row(const Layout& vector);
Layout as_column(const Layout& vector);
/// With the last two dimensions exchanged.
Layout transposed(const Layout& matrices);
/// The sizes before the last two.
Dims batch_sizes(const Layout& matrices);

}  // namespace lorry
