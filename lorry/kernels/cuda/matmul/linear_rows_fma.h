#pragma once

#include "lorry/kernels/matmul.h"

namespace lorry::kernels::cuda {

/// MatmulKernels::linear_rows without tensor cores: for f32, f64, and devices on which linear_rows.cu cannot run.
void linear_rows_fma(const LinearRowsArgs& args, Stream stream);

}  // namespace lorry::kernels::cuda
