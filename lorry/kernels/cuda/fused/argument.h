#pragma once

// Arguments of generated kernels: 64-bit words, some of which are addresses.

#include <array>

#include "lorry/device/cuda/parameters.h"
#include "lorry/kernels/fused.h"

namespace lorry::kernels::cuda {

/// Memory for an argument; larger than any call needs.
using ArgumentWords = std::array<uint64_t, 320>;
/// The type of an argument of so many words. The word kOperandsWord is the number of addresses, which follow it.
lorry::cuda::ParameterType argument_type(size_t words);
inline constexpr size_t kOperandsWord = 2;
/// The bits of a number of the host, in the type in which a kernel reads it.
uint64_t bits_of(FusedNumber number, DType dtype, DType as);

}  // namespace lorry::kernels::cuda
