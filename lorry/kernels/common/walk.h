#pragma once

// Fused calls (kernels/fused.h) as both backends hold them.

#include <vector>

#include "lorry/kernels/fused.h"

namespace lorry::kernels {

/// A fused call that owns its lists.
struct MapCall {
  explicit MapCall(const FusedCall& call)
      : sizes(call.sizes),
        inputs(call.inputs.begin(), call.inputs.end()),
        steps(call.steps.begin(), call.steps.end()),
        outputs(call.outputs.begin(), call.outputs.end()) {}

  /// The element type of a register.
  DType dtype(int r) const {
    const auto i = static_cast<size_t>(r);
    return i < inputs.size() ? inputs[i].dtype : steps[i - inputs.size()].dtype;
  }

  Dims sizes;
  std::vector<FusedOperand> inputs;
  std::vector<FusedStep> steps;
  std::vector<FusedOutput> outputs;
};

/// The operands of a call walked together.
struct Walk {
  /// Throws ValueError for more than kMaxFusedLayouts.
  explicit Walk(const MapCall& call);

  Iteration iteration;
  std::vector<int> of_input, of_output;  ///< the operand of the iteration; -1: a number
};

}  // namespace lorry::kernels
