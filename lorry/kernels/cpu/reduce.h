#pragma once

#include "lorry/kernels/reduce.h"

namespace lorry::kernels::cpu {

void scan(const ScanArgs& args, const Stream&);

/// The CPU's column of kernels/reduce.h.
const ReduceKernels& reduce_kernels();

}  // namespace lorry::kernels::cpu
