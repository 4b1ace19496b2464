#pragma once

#include <string>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Runs the graph's nodes on the meta device, which computes layouts alone, and compares them with the layouts of the
/// graph's values. Empty if they agree; else the first node whose results differ, or that has no form on meta.
std::string why_shapes_differ(const Graph& graph);

/// Whether a view has the layout and the offset that follow from its attributes. True for as_strided.
bool holds(const ViewCall& view);

}  // namespace lorry::trace
