#pragma once

// A check of what fusion made.

#include <vector>

#include "lorry/compile/fuse.h"

namespace lorry::compiler {

/// Throws CompileError if units do not compute the graph: a node is in no unit or in two, a unit reads what a later one
/// makes, or a unit of maps or rows does not write what others read, writes it from another register than its step's,
/// reads a register before it is set, or reads other operands than its nodes do.
void verify(const trace::Graph& graph, const std::vector<Unit>& units);

}  // namespace lorry::compiler
