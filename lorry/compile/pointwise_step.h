#pragma once

#include <optional>

#include "lorry/kernels/fused.h"
#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// A node as a step over registers, if it is pointwise. Operands are numbered like its arguments.
std::optional<kernels::FusedStep> pointwise_step(const trace::Graph& graph, const trace::Node& node);

}  // namespace lorry::compiler
