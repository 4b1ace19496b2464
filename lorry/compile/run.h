#pragma once

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"

namespace lorry::compiler {

/// Runs a map or a row unit: its outputs become values of the evaluation.
void run_fused(const trace::Graph& graph, const Unit& unit, trace::Evaluation& evaluation);

}  // namespace lorry::compiler
