#pragma once

#include "lorry/kernels/copy.h"
#include "lorry/kernels/pointwise.h"

namespace lorry::kernels::cpu {

const PointwiseKernels& pointwise_kernels();
const CopyKernels& copy_kernels();

}  // namespace lorry::kernels::cpu
