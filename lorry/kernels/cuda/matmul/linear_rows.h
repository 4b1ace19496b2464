#pragma once

#include "lorry/kernels/matmul.h"

namespace lorry::kernels::cuda {

/// MatmulKernels::linear_rows.
void linear_rows(const LinearRowsArgs& args, Stream stream);

}  // namespace lorry::kernels::cuda
