#pragma once

// Matrix products. One kernel serves mm, bmm, matmul, addmm, baddbmm, linear and their gradients: transposes and
// broadcast batches are strides, a bias is an addend with a zero stride, so neither is ever materialised.

#include <atomic>
#include <cstdint>

#include "lorry/device/choices.h"
#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// out = alpha * (a @ b) + beta * c over equal batch sizes: a [..., m, k], b [..., k, n], out and c [..., m, n].
/// All operands have one dtype (any but bool) and one rank >= 2; broadcast batch dimensions have stride 0.
/// - Every matrix of a and b has a unit stride (`has_unit_stride`), and so has out's; c has any strides.
/// - c.data null, or beta 0: nothing is added, and what out or c held is not read (NaN there does not spread).
/// - c may be out itself (same address and layout); otherwise out overlaps no operand.
/// - alpha 0: a and b are not read.
/// - 16-bit floats accumulate in f32 and round once. Integers wrap, and their alpha and beta are whole numbers.
/// - The result does not depend on the number of threads.
struct MatmulArgs {
  Array out, a, b, c;
  double alpha = 1, beta = 0;
};

struct MatmulKernels {
  void (*matmul)(const MatmulArgs&, Stream);
};

/// True when the matrix in the last two dimensions can be read in place: one of its strides is 1 and the other steps
/// past a whole row (or column). Sizes of 1 have whatever stride suits.
bool has_unit_stride(const Layout& layout);

/// The process's choices, which ops/matmul.h explains to users. The CPU has none to make.
struct MatmulSettings {
  std::atomic<Precision> precision;
  std::atomic<bool> tuning;  ///< at first what LORRY_MATMUL_TUNE says: 0 (the default) or 1
};
MatmulSettings& matmul_settings();

}  // namespace lorry::kernels
