#pragma once

#include "lorry/kernels/sort.h"

namespace lorry::kernels::cuda {

/// SortKernels::unique. unique.cu.
int64_t unique(const Array& values, const Array& inverse, const Array& counts, const Array& x, const Stream& stream);

}  // namespace lorry::kernels::cuda
