#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Whether a step may make value `made` in memory that holds value `old`: it reads no other element of that than the
/// one it is about to write.
using Overwrites = std::function<bool(int32_t step, int32_t old, int32_t made)>;

/// For each value the input in whose memory it can be made, instead of being written back at the end; -1: none. Nobody
/// reads later what the memory held. step_of: of each node, in the order of the run.
std::vector<int> made_in_inputs(const Graph& graph, std::span<const int32_t> step_of, const Overwrites& overwrites);

/// Whether a node that is a step of its own does so.
bool overwrites(const Node& node, int32_t old, int32_t made);

}  // namespace lorry::trace
