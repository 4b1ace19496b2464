#pragma once

// Fused calls (kernels/fused.h): the parts that both backends share.

#include <vector>

#include "lorry/kernels/fused.h"

namespace lorry::kernels {

/// A copy of a fused call that owns its lists.
struct MapCall {
  explicit MapCall(const FusedCall& call)
      : sizes(call.sizes),
        inputs(call.inputs.begin(), call.inputs.end()),
        steps(call.steps.begin(), call.steps.end()),
        outputs(call.outputs.begin(), call.outputs.end()),
        sums(call.sums.begin(), call.sums.end()) {}

  /// The element type of a register.
  DType dtype(int r) const {
    const auto i = static_cast<size_t>(r);
    return i < inputs.size() ? inputs[i].dtype : steps[i - inputs.size()].dtype;
  }

  Dims sizes;
  std::vector<FusedOperand> inputs;
  std::vector<FusedStep> steps;
  std::vector<FusedOutput> outputs;
  std::vector<FusedSum> sums;
};

/// The iteration over all operands of a call.
struct Walk {
  /// Throws ValueError for more than kMaxFusedLayouts.
  explicit Walk(const MapCall& call);

  Iteration iteration;
  /// per input or output: its operand number in the iteration; -1: it is a number
  std::vector<int> of_input, of_output;
};

}  // namespace lorry::kernels
