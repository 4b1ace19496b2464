#pragma once

// Norms and scaling over one run of elements, in the two types in which the CPU computes; compiled once for each
// instruction set.

#include <cstdint>

namespace lorry::kernels::cpu {

struct ListNormRuns {
  /// The sum of |x|, the sum of x^2 and the largest |x| (NaN when one is), in f64 and in the order of
  /// kernels/list_norm.h, for a tile of any length. [0] float, [1] double.
  double (*sum_abs[2])(const void* x, int64_t n);
  double (*sum_square[2])(const void* x, int64_t n);
  double (*max_abs[2])(const void* x, int64_t n);
  /// x * factor, the factor rounded to the element type.
  void (*scale[2])(void* x, int64_t n, double factor);
};

/// The functions for the instruction set of this process.
const ListNormRuns& list_norm_runs();

}  // namespace lorry::kernels::cpu
