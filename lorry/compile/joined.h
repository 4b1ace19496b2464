#pragma once

// Operators that one kernel of the library computes together:
//
//   cross_entropy(x), its backward    one pass over x; the gradient is written over x if nothing else reads it
//   layer_norm_backward -> add (-> sum)    the gradient of a residual connection, and that of the bias before it
//   embedding_backward -> add              the gradient of a table that the output layer shares; in 16 bits
//   norm -> linear_rows -> one more        joined_rows.h
//
// They give the bits of the operators, except for such a sum, which fuse() has put beside the addition, and the sign of
// zeros in a table.

#include <vector>

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"

namespace lorry::compiler {

/// Joins units of one node that a library runs, or of an addition and its sum, into units of kind Unit::joined. The
/// units are those of fuse(), and stay in an order in which they can run. products: products_of_rows(). keeps_bits:
/// joins only what gives the bits of the operators.
void join_operators(const trace::Graph& graph, std::vector<Unit>& units,
                    const std::vector<std::vector<int32_t>>& products, bool keeps_bits);

/// Runs such a unit as a step.
void run_joined(const trace::Graph& graph, const Unit& unit, trace::Evaluation& evaluation, int32_t step);

}  // namespace lorry::compiler
