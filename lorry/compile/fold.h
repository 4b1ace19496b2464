#pragma once

// Rewrites of pointwise nodes that keep the bits of their results, except that the bits of a NaN pass through where the
// operator might make another NaN.

#include "lorry/trace/graph.h"

namespace lorry::compiler {

/// The value that a pure pointwise node would only repeat: x of x * 1, x / 1, x - 0, -(-x), abs(abs(x)),
/// where(c, x, x), ..., if x is a whole value of the result's dtype and layout. -1 if the node computes something, as
/// x + 0 does: it makes 0 of -0.
int32_t repeated_value(const trace::Graph& graph, const trace::Node& node, const trace::Value& result);

/// Replaces operands that were filled with one number by that number, if sizes and types of the result do not depend on
/// them: zeros_like(x) + x reads one tensor.
void replace_filled_operands(const trace::Graph& graph, trace::Node& node, const trace::Value& result);

}  // namespace lorry::compiler
