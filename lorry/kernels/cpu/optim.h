#pragma once

#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

extern const OptimKernels kOptimKernels;

}  // namespace lorry::kernels::cpu
