#pragma once

#include "lorry/kernels/rotary.h"

namespace lorry::kernels::cpu {

const RotaryKernels& rotary_kernels();

}  // namespace lorry::kernels::cpu
