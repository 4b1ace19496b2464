#pragma once

#include "lorry/device/stream.h"
#include "lorry/kernels/cuda/matmul/matmul_problem.h"

namespace lorry::kernels::cuda {

/// Computes any product with Lorry's own kernels: for integers, and for products that the library does not support.
void multiply_builtin(const Problem& problem, Stream stream);
/// The same for a and b of i8 and an out of i32, without addend.
void multiply_builtin_int8(const Problem& problem, Stream stream);

}  // namespace lorry::kernels::cuda
