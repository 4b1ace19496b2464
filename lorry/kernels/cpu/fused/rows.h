#pragma once

#include "lorry/kernels/fused.h"

namespace lorry::kernels::cpu {

void run_rows(const RowCall& call, Stream stream);

}  // namespace lorry::kernels::cpu
