#pragma once

// Norms and scaling of one run of elements, in the two types in which the CPU computes. Compiled once for each
// instruction set.

#include <cstdint>

#include "lorry/formula/list_folds.h"

namespace lorry::kernels::cpu {

struct ListNormRuns {
  /// The norm of a tile of any length, in f64 and in the order of kernels/list.h: by NormOrder, then [0] float, [1]
  /// double.
  double (*sum[static_cast<int>(formula::NormOrder::power)][2])(const void* x, int64_t n);
  /// x * factor, the factor rounded to the element type. [0] float, [1] double.
  void (*scale[2])(void* x, int64_t n, double factor);
};

/// The functions for this process's instruction set.
const ListNormRuns& list_norm_runs();

}  // namespace lorry::kernels::cpu
