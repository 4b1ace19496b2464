#pragma once

// How a profiler sees the units of a compiled function.

#include "lorry/base/span.h"
#include "lorry/compile/fuse.h"
#include "lorry/ops/dispatch/cost.h"

namespace lorry::compiler {

/// What a unit must move and compute: each value from outside is read once, and each result that is used outside is
/// written once; what its nodes compute.
door::Cost cost_of(const trace::Graph& graph, const Unit& unit);

/// Describes it by its operators, and the module and stack of its first node that has them.
void describe(const trace::Graph& graph, const Unit& unit, SpanDescription& to);

}  // namespace lorry::compiler
