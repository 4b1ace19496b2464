#pragma once

#include <vector>

#include "lorry/kernels/fused.h"

namespace lorry::kernels::cpu {

/// The operands of a call walked together.
struct Walk {
  /// Throws ValueError for more than kMaxFusedLayouts.
  explicit Walk(const FusedCall& call);

  Iteration iteration;
  std::vector<int> of_input, of_output;  ///< the operand of the iteration; -1: a number
};

}  // namespace lorry::kernels::cpu
