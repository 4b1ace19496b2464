#pragma once

// Sums over columns: which sums a map can compute beside its results, and operands as rows of such a map.

#include <optional>
#include <string>

#include "lorry/compile/rows.h"

namespace lorry::compiler {

/// The rows that a sum adds up: it reads all elements of a value in their order, as `rows` rows of n, and gives n sums.
/// None if the node is no such sum, or if its device's maps compute none; if it is a sum, `why` says why not.
std::optional<RowDomain> summed_rows(const trace::Graph& graph, const trace::Node& node, std::string& why);

/// A layout as [rows, n]; none if its strides do not allow that, or if a kernel with sums could not use it: along n it
/// has stride 1 and whole runs (FusedCall::sums), or, if it is only read, 0.
std::optional<Layout> in_rows(const Layout& layout, DType dtype, const RowDomain& rows, bool is_written);

}  // namespace lorry::compiler
