#pragma once

#include <vector>

#include "lorry/kernels/fused.h"

namespace lorry::kernels::cpu {

/// A fused call that owns its lists.
struct MapCall {
  Dims sizes;
  std::vector<FusedOperand> inputs;
  std::vector<FusedStep> steps;
  std::vector<FusedOutput> outputs;
};

/// Where the operands of a run lie.
struct Addresses {
  std::span<void*const> inputs, outputs;
};

/// The operands of a call walked together.
struct Walk {
  /// Throws ValueError for more than kMaxFusedLayouts.
  explicit Walk(const MapCall& call);

  Iteration iteration;
  std::vector<int> of_input, of_output;  ///< the operand of the iteration; -1: a number
};

}  // namespace lorry::kernels::cpu
