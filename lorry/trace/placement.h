#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Whether a step may write value `made` to the memory of value `old`: for each element it reads no element of `old`
/// other than the one it writes.
using Overwrites = std::function<bool(int32_t step, int32_t old, int32_t made)>;

/// For each value: the input in whose memory it can be computed, instead of being written back at the end; -1: none.
/// Only if the old contents are not read later. step_of: the step of each node, in the order of the run.
std::vector<int> made_in_inputs(const Graph& graph, std::span<const int32_t> step_of, const Overwrites& overwrites);

/// `Overwrites` for a step that consists of one node.
bool overwrites(const Node& node, int32_t old, int32_t made);

}  // namespace lorry::trace
