#pragma once

#include "lorry/kernels/foreach.h"
#include "lorry/kernels/list_norm.h"

namespace lorry::kernels::cpu {

extern const ForeachKernels kForeachKernels;
extern const ListNormKernels kListNormKernels;

}  // namespace lorry::kernels::cpu
