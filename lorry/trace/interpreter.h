#pragma once

// The interpreter: runs a graph node by node with the operators themselves. It is slow and simple, and defines the bits
// that compiled code must compute.

#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Runs the graph: writes what the function wrote, sets the gradients it set, calls its host callbacks, and returns its
/// results. Takes random draws as the function would if it were called now, and advances the generators as much. Throws
/// ValueError if the graph's Guard does not hold for the arguments or if this thread is being recorded, and the errors
/// of the operators.
std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> arguments);

}  // namespace lorry::trace
