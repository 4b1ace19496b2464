#pragma once

// Rows: which nodes are operators over rows, and the extents of operands relative to these rows.

#include <optional>
#include <string>

#include "lorry/kernels/fused.h"
#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// Rows of n elements, and how they are distributed among a device's threads (kernels/fused.h).
struct RowDomain {
  int64_t rows = 0, n = 0, distribution = 0;  ///< FusedKernels::row_distribution
  friend bool operator==(const RowDomain&, const RowDomain&) = default;
};

/// The stride of dimensions first to end - 1 as one dimension; none if they cannot be merged. If they have one element:
/// `otherwise`.
std::optional<int64_t> merged_stride(const Layout& layout, int first, int end, int64_t otherwise);

/// The extent of an operand that is read through `layout`, with an element for each element of the rows, or for each
/// row. None if it is not one of the extents.
std::optional<kernels::Extent> extent_of(const Layout& layout, const RowDomain& rows);

/// The extent of a result of a row unit.
kernels::Extent extent_of_result(const Layout& layout, const RowDomain& rows);

/// A node as a row step. Operands are numbered like its arguments; -1: undefined.
struct RowNode {
  kernels::RowStep step;
  RowDomain rows;
};

/// A node as a row step, if its device has kernels over rows for it. Otherwise none; for an operator over rows, `why`
/// says why not.
std::optional<RowNode> row_node(const trace::Graph& graph, const trace::Node& node, std::string& why);

}  // namespace lorry::compiler
