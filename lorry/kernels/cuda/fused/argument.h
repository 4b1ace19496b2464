#pragma once

// Arguments of generated kernels: words, of which some are addresses.

#include "lorry/device/cuda/parameters.h"
#include "lorry/kernels/fused.h"

namespace lorry::kernels::cuda {

/// Where the addresses are in the words of an argument: the word before them says how many.
lorry::cuda::ParameterType argument_type(size_t words);
inline constexpr size_t kOperandsWord = 2;
/// A number of the host in the type in which a kernel reads it.
uint64_t bits_of(FusedNumber number, DType dtype, DType as);

}  // namespace lorry::kernels::cuda
