#pragma once

// Beside optim.h because kernels that are compiled at run time, which know nothing of lists, need it too.

#include <cstdint>

namespace lorry::kernels {

/// How the exact value of a 16-bit parameter is carried from step to step.
///   none        not at all: the parameter is widened, stepped in f32, and rounded to nearest even
///   f32         a master in f32 is stepped; the parameter is only written, its rounded copy
///   split       the lower half of an f32 whose upper half is the bf16 parameter: their sum is stepped, with no copy of
///               the upper half. The parameter is the f32 rounded to nearest, ties away from zero
///   stochastic  not at all, but a bf16 parameter is rounded stochastically (formula/rounding.h)
enum class MasterKind : uint8_t { none, f32, split, stochastic };

}  // namespace lorry::kernels
