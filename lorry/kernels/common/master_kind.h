#pragma once

// Apart from optim.h because kernels compiled at run time include it, and they do not include lists.

#include <cstdint>

namespace lorry::kernels {

/// How a step keeps the exact value of a 16-bit parameter.
///   none        it does not: the parameter is widened to f32, stepped, and rounded to nearest even
///   f32         in a master copy in f32, which is stepped; the parameter is its rounded copy
///   split       as an f32 in two halves: the bf16 parameter, and the lower half, stored separately. The parameter is
///               the f32 rounded to nearest, ties away from zero
///   stochastic  it does not; a bf16 parameter is rounded stochastically (formula/rounding.h)
enum class MasterKind : uint8_t { none, f32, split, stochastic };

}  // namespace lorry::kernels
