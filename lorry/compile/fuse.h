#pragma once

// Fusion: which nodes of a graph run together.

#include <optional>
#include <string>
#include <vector>

#include "lorry/compile/rows.h"
#include "lorry/kernels/fused.h"
#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// Nodes that run as one.
struct Unit {
  enum Kind : uint8_t {
    library,  ///< one node, by its own operator
    map,      ///< pointwise nodes over the same elements, as one kernel
    row,      ///< operators over rows (softmax, norms, reductions) and the pointwise ones beside them, row by row
  };
  std::vector<int32_t> nodes;
  Kind kind = library;
  // of a map and of a row unit
  std::vector<trace::Argument> inputs;  ///< values and numbers
  std::vector<int32_t> outputs;         ///< values that somebody else reads
  std::vector<int16_t> output_registers;
  // of a map
  std::vector<kernels::FusedStep> steps;  ///< one a node
  Dims sizes;
  // of a row unit
  std::vector<kernels::RowStep> row_steps;  ///< one a node
  std::vector<kernels::Extent> extents;     ///< of the inputs
  RowDomain rows;

  int64_t bytes_saved = 0;  ///< that its nodes would have written and read again
  std::string refused;      ///< why its last node did not join a unit before it; empty where it could not have
};

/// What a node does at each element, where that is all it does; operands are numbered as its arguments are.
std::optional<kernels::FusedStep> pointwise_step(const trace::Graph& graph, const trace::Node& node);

/// The units of a graph that went through simplify(), in an order in which they can run.
std::vector<Unit> fuse(const trace::Graph& graph);

}  // namespace lorry::compiler
