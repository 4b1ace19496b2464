#pragma once

// Rows: which nodes make something of each row of their operands, and how operands lie beside those rows.

#include <optional>
#include <string>

#include "lorry/kernels/fused.h"
#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// Rows of n elements, and how they are dealt to a device's threads (kernels/fused.h).
struct RowDomain {
  int64_t rows = 0, n = 0, deal = 0;
  friend bool operator==(const RowDomain&, const RowDomain&) = default;
};

/// How elements that are read through a layout lie beside rows: that of the rows' own sizes, or of one element a row.
/// nullopt: otherwise.
std::optional<kernels::Extent> extent_of(const Layout& layout, const RowDomain& rows);

/// That of a result of a unit over rows.
kernels::Extent extent_of_result(const Layout& layout, const RowDomain& rows);

/// A node that is a row step; its operands are numbered as its arguments are, -1 where one is undefined.
struct RowNode {
  kernels::RowStep step;
  RowDomain rows;
};

/// What a node does to each row, where its device has kernels over rows. Otherwise nullopt; `why` then says what is
/// wrong with its rows, where it is an operator over rows.
std::optional<RowNode> row_node(const trace::Graph& graph, const trace::Node& node, std::string& why);

}  // namespace lorry::compiler
