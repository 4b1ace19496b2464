#pragma once

// StateType: how an optimizer stores its states. Apart from choices.h, because kernels compiled at run time include it.

#include <cstdint>

namespace lorry {

/// How a state of an optimizer is stored. Kernels compute with it in f32.
///   f32
///   bf16   with stochastic rounding; with rounding to nearest, changes of a mean by less than half of its last bit
///          would be lost
///   q8     8-bit codes in blocks with scales (formula/quantize.h)
/// In a list of tensors they are arrays of kF32, kBF16 and kU8. States of f64 parameters are f64.
enum class StateType : uint8_t { f32, bf16, q8 };

}  // namespace lorry
