#pragma once

// The interpreter: runs a graph node by node through the door's own operators. It is slow and obvious, and says what
// the compiler's code has to compute, to the bit.

#include <span>
#include <vector>

#include "lorry/trace/evaluation.h"

namespace lorry::trace {

struct InterpreterOptions {
  /// Makes a call from its announcement. foreach::run by default; optim::run where the graph holds optimizer steps.
  RunCall run = nullptr;
};

/// Writes what the function wrote, sets the gradients that it set, and returns what it returned. Draws random numbers
/// with the keys of the recording. `arguments` have the sizes, strides, dtypes and shared memory of the recorded ones;
/// throws ValueError where one differs, and what the operators throw.
std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> arguments,
                              const InterpreterOptions& options = {});

}  // namespace lorry::trace
