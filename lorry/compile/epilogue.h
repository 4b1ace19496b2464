#pragma once

// Products with epilogues: a product takes the nodes beside it into itself where the device's library has a kernel for
// that (kernels/matmul.h).
//
//   linear(x, w, b) -> gelu              one product, which writes the input of GELU too where others read it
//   matmul(g, w) -> gelu_backward -> sum one product, and the sums of its columns: the gradient of a bias
//   matmul(g^T, x), sum(g)               one product, and the sums of its first operand
//
// The last two are joined only on request: on an H200 with cuBLAS 13 the library runs these epilogues as kernels of
// their own, which are slower than Lorry's (docs/compile.md).
//
// GELU and its gradient are computed from sums that have not been rounded to 16 bits, so results may differ from those
// of the operators by that rounding.

#include <memory>
#include <vector>

#include "lorry/compile/fuse.h"

namespace lorry::compiler {

/// Joins units of one node that a library runs into units of kind Unit::product. The units are those of fuse(), and
/// stay in an order in which they can run. A neighbour that its product could not take in says why in Unit::refused.
/// all: gradients of GELU and of a bias too.
void join_products(const trace::Graph& graph, std::vector<Unit>& units, bool all = false);

/// The kernel of a product unit. Its run() returns false if the library has no algorithm for the addresses, and emits a
/// warning event the first time.
std::unique_ptr<const kernels::FusedKernel> make_product(const trace::Graph& graph, const Unit& unit);

}  // namespace lorry::compiler
