#pragma once

#include "lorry/tensor/tensor.h"

namespace lorry {

/// exp(x) along `dim`, scaled to sum to 1. Floating input, or a floating `dtype` to convert it to first. A row whose
/// maximum is infinite or NaN is NaN throughout.
Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
/// Its logarithm, computed without forming the exponentials' ratio.
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
const Tensor& softmax_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
const Tensor& log_softmax_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype = {});

}  // namespace lorry
