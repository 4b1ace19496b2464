#pragma once

// A check of what fusion made.

#include <vector>

#include "lorry/compile/fuse.h"

namespace lorry::compiler {

/// Throws CompileError that names the unit if units do not compute the graph: a node is in no unit or in two, a unit
/// reads what a later one makes, a fused unit does not write what others read, or its steps, registers and operands do
/// not match.
void verify(const trace::Graph& graph, const std::vector<Unit>& units);

}  // namespace lorry::compiler
