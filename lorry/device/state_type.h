#pragma once

// Beside choices.h because kernels that are compiled at run time need it too.

#include <cstdint>

namespace lorry {

/// What a state of an optimizer is stored as; its values are f32 in either.
///   f32
///   bf16   rounded stochastically: rounded to nearest, a mean that moves by less than half of its last bit would stand
///          still
///   q8     8-bit codes in blocks with scales (formula/quantize.h)
/// In a list they are arrays of kF32, kBF16 and kU8. States of f64 parameters are f64.
enum class StateType : uint8_t { f32, bf16, q8 };

}  // namespace lorry
