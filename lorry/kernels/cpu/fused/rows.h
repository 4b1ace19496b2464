#pragma once

#include "lorry/kernels/fused.h"

namespace lorry::kernels::cpu {

std::unique_ptr<const FusedKernel> make_rows(const RowCall& call, Device device);

}  // namespace lorry::kernels::cpu
