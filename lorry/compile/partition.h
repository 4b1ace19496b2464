#pragma once

// Partition: a function and its backward, recorded as one graph, become two graphs.

#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::compiler {

struct Partition {
  /// The function: of the same arguments, with the saved values as further results.
  trace::Graph forward;
  /// From the saved inputs, the saved values and the gradients of results, in this order, to the gradients.
  trace::Graph backward;
  std::vector<size_t> saved_inputs;  ///< inputs of `forward` that the backward reads too
};

/// graph: of `arguments` arguments and then the gradients of results, with `results` results and then the gradients of
/// arguments; simplified. What the backward reads of the forward is saved, or made again from what is saved where that
/// is fewer bytes. Throws CompileError where the function does more than
/// return results, and where a result lies in the memory of another or of an argument.
Partition partition(const trace::Graph& graph, size_t arguments, size_t results);

}  // namespace lorry::compiler
