#pragma once

#include "lorry/kernels/matmul.h"

namespace lorry::kernels::cuda {

/// MatmulKernels::linear_rows.
void linear_rows(const LinearRowsArgs& args, Stream stream);
/// Up to so many rows, each warp of a block normalises one. With more, all blocks would spend longer on norms than a
/// kernel for them does: when it did so on an H100, a decode step of GPT-2 took 560 us instead of 633 with 8 rows, but
/// 764 instead of 691 with 16.
constexpr int64_t kFewRows = 8;
/// MatmulKernels::linear_rows_limits.
LinearRowsLimits linear_rows_limits(Device device);
/// MatmulKernels::linear_rows_with.
bool linear_rows_with(const LinearRowsArgs& args, const LinearRowsNeighbours& with, Stream stream);

}  // namespace lorry::kernels::cuda
