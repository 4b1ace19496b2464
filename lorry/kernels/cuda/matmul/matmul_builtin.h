#pragma once

#include "lorry/device/stream.h"
#include "lorry/kernels/cuda/matmul/matmul_problem.h"

namespace lorry::kernels::cuda {

/// Any problem, by kernels of our own: whole numbers, and what the library does not take.
void multiply_builtin(const Problem& problem, Stream stream);

}  // namespace lorry::kernels::cuda
