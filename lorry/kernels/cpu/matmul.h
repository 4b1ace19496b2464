#pragma once

#include "lorry/kernels/matmul.h"

namespace lorry::kernels::cpu {

const MatmulKernels& matmul_kernels();

}  // namespace lorry::kernels::cpu
