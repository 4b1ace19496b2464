#pragma once

#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// The same function with less to do, to the bit: pointwise operators in place become pure ones (and a copy, where they
/// wrote a part), a call that was made before is not made again, and what nobody reads is not made at all. Random
/// draws that are read stay.
trace::Graph simplify(const trace::Graph& graph);

}  // namespace lorry::compiler
