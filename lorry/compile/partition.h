#pragma once

// Partition: splits a function and its backward, recorded as one graph, into two graphs.

#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::compiler {

struct Partition {
  /// The function, with the same arguments; the saved values are further results.
  trace::Graph forward;
  /// The backward. Its arguments are the saved inputs, the saved values and the gradients of results, in this order;
  /// its results are the gradients.
  trace::Graph backward;
  std::vector<size_t> saved_inputs;  ///< the inputs of `forward` that the backward reads too
};

/// graph: from simplify(), with `arguments` arguments followed by the gradients of results, and `results` results
/// followed by the gradients of arguments. Values of the forward that the backward reads are saved, or recomputed from
/// saved ones if that saves fewer bytes. Throws CompileError if the function does more than return results, and if a
/// result shares memory with another result or with an argument.
Partition partition(const trace::Graph& graph, size_t arguments, size_t results);

}  // namespace lorry::compiler
