#pragma once

#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// Returns an equivalent graph with less work and the same bits. In-place pointwise operators become pure ones
/// (followed by a copy if they write only a part), repeated calls are merged, and unread results are removed. Random
/// draws that are read are kept.
trace::Graph simplify(const trace::Graph& graph);

}  // namespace lorry::compiler
