#pragma once

#include "lorry/kernels/matmul.h"

namespace lorry::kernels::cpu {

/// MatmulKernels::linear_rows.
void linear_rows(const LinearRowsArgs& args, Stream);

}  // namespace lorry::kernels::cpu
