#pragma once

#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

const OptimKernels& optim_kernels();

}  // namespace lorry::kernels::cpu
