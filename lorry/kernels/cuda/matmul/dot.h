#pragma once

#include "lorry/kernels/cuda/matmul/matmul_problem.h"

namespace lorry::kernels::cuda {

/// Computes one product of a row and a column of a floating type of 16 bits or more; returns false for all others.
bool dot(const Problem& p, Stream stream);

}  // namespace lorry::kernels::cuda
