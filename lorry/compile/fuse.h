#pragma once

// Fusion: decides which nodes of a graph run together.

#include <string>
#include <vector>

#include "lorry/compile/rows.h"
#include "lorry/kernels/fused.h"
#include "lorry/kernels/matmul.h"
#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// Nodes that run together.
struct Unit {
  enum Kind : uint8_t {
    library,  ///< one node, run by its operator
    map,      ///< pointwise nodes over the same elements, as one kernel
    row,      ///< operators over rows (softmax, norms, reductions) and pointwise nodes next to them, row by row
    product,  ///< a product, which is the first node, and what it takes into itself (epilogue.h)
    joined,   ///< two or three operators, run by one kernel of the library (joined.h)
  };
  std::vector<int32_t> nodes;
  Kind kind = library;
  // of all but library and joined units
  std::vector<trace::Argument> inputs;  ///< values and numbers; of a product unit its operands, then the epilogue's
  std::vector<int32_t> outputs;         ///< values read outside the unit
  // of a map and of a row unit
  std::vector<int16_t> output_registers;
  // of a map
  std::vector<kernels::FusedStep> steps;  ///< one a pointwise node
  Dims sizes;
  /// The registers that its `sum` nodes add up over the leading dimensions. These nodes come last, and so do their
  /// results among the outputs; `rows` is then what the unit works on.
  std::vector<int16_t> sum_registers;
  // of a row unit
  std::vector<kernels::RowStep> row_steps;  ///< one a node
  std::vector<kernels::Extent> extents;     ///< of the inputs
  RowDomain rows;
  // of a product unit
  kernels::MatmulEpilogue::Kind epilogue = kernels::MatmulEpilogue::none;

  int64_t bytes_saved = 0;  ///< bytes that the nodes alone would write and read again
  /// why its last node did not join an earlier unit; empty if there was none that it could have joined
  std::string refused;
};

/// Whether a node can be fused with others: it is pointwise, or an operator over rows.
bool is_fusible(const trace::Graph& graph, const trace::Node& node);

/// The units of a graph that simplify() returned, in an order in which they can run. column_sums: maps also compute the
/// sums of their results over leading dimensions, where the device can; these may differ from the operator's in their
/// last bits. apart: nodes that stay units by themselves.
std::vector<Unit> fuse(const trace::Graph& graph, bool column_sums = false,
                       const std::vector<std::vector<int32_t>>& apart = {});

}  // namespace lorry::compiler
