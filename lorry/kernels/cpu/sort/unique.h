#pragma once

#include "lorry/kernels/common/array.h"

namespace lorry::kernels::cpu {

/// SortKernels::unique of a row whose elements are sorted; order: their positions in it.
int64_t number_values(const Array& values, const Array& inverse, const Array& counts, const Array& sorted,
                      const Array& order);

}  // namespace lorry::kernels::cpu
