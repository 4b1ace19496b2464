#pragma once

#include "lorry/kernels/list_norm.h"

namespace lorry::kernels::cpu {

extern const ListNormKernels kListNormKernels;

}  // namespace lorry::kernels::cpu
