#pragma once

// Products of rows (Op::linear_rows) with the operators before and after them, run by one kernel with the bits of the
// operators:
//
//   layer_norm or rms_norm -> linear_rows -> gelu (its tanh form), -> add, or -> paged_write
//
// each of the three where it is there; all but GELU for few rows only (kernels::MatmulKernels::few_rows). A decode step
// of a GPT consists of these and of attention.

#include <vector>

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"

namespace lorry::compiler {

/// The nodes of each such product, in the order in which they run. They must be kept out of fuse().
std::vector<std::vector<int32_t>> products_of_rows(const trace::Graph& graph);

/// Whether the nodes of a joined unit are such a product.
bool is_product_of_rows(const trace::Graph& graph, const Unit& unit);
/// Runs it as a step.
void run_product_of_rows(const trace::Graph& graph, const Unit& unit, trace::Evaluation& evaluation, int32_t step);

}  // namespace lorry::compiler
