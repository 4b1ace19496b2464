#pragma once

// The interpreter: runs a graph node by node through the door's own operators. It is slow and obvious, and says what
// the compiler's code has to compute, to the bit.

#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Writes what the function wrote, sets the gradients that it set, calls the host back, and returns what it returned.
/// Draws random numbers as the function would if it were called now, and advances its generators as much. Throws
/// ValueError where the graph's Guard does not hold for the arguments or this thread is being recorded, and what the
/// operators throw.
std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> arguments);

}  // namespace lorry::trace
