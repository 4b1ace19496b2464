#pragma once

#include "lorry/tensor/tensor.h"

namespace lorry {

/// The rows of weight named by indices. indices: [...] i64 or i32, in [0, rows); weight: [rows, width]. Returns [...,
/// width]. The row `padding_idx` (negative: counted from the end) gets no gradient. Throws IndexError, ShapeError,
/// DTypeError.
Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx = {});

/// For the rule: the sum of the rows of grad [..., width] by index, as [rows, width]. Rows are added in the order of
/// the indices, 16-bit floats in f32. The row `padding_idx` stays 0; -1: none is left out.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t rows, int64_t padding_idx);

}  // namespace lorry
