#pragma once

// Fusion: which nodes of a graph run together.

#include <string>
#include <vector>

#include "lorry/kernels/fused.h"
#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// Nodes that run as one: a node by its own operator, or pointwise nodes over the same elements as one kernel.
struct Unit {
  std::vector<int32_t> nodes;
  bool fused = false;
  // of a fused one
  std::vector<trace::Argument> inputs;    ///< values and numbers
  std::vector<kernels::FusedStep> steps;  ///< one a node
  std::vector<int32_t> outputs;           ///< values that somebody else reads
  std::vector<int16_t> output_registers;
  Dims sizes;
  int64_t bytes_saved = 0;  ///< that its nodes would have written and read again
  std::string refused;      ///< why its last node did not join a unit before it; empty where it could not have
};

/// The units of a graph that went through simplify(), in an order in which they can run.
std::vector<Unit> fuse(const trace::Graph& graph);

}  // namespace lorry::compiler
