#pragma once

#include "lorry/tensor/tensor.h"

namespace lorry {

/// The rows of weight named by indices. indices: [...] i64 or i32, in [0, rows); weight: [rows, width]. Returns [...,
/// width]. The row `padding_idx` (negative: counted from the end) gets no gradient. Throws IndexError, ShapeError,
/// DTypeError.
Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx = {});

}  // namespace lorry
