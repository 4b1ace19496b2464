#pragma once

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Undoes a broadcast: sums x over the dimensions that `sizes` lacks or has as 1. x itself when the sizes agree. Throws
/// ShapeError unless `sizes` broadcasts to x's. It is what the gradient of every broadcasting operator ends with.
Tensor sum_to_size(const Tensor& x, const Dims& sizes);

}  // namespace lorry
