#pragma once

// Normalisation of trailing dimensions.

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Normalises the trailing dimensions `normalized_shape` to mean 0 and variance 1, then scales and shifts.
/// x: [..., normalized_shape] floating; weight, bias: normalized_shape, dtype of x, each may be undefined.
/// Statistics are accumulated in f64. Throws ShapeError, DTypeError. Ba, Kiros, Hinton 2016, eq. 4.
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// Divides the trailing dimensions by the root of their mean square, then scales. Without `eps`, the machine epsilon of
/// the type in which x is computed: f32, or f64 for f64. Zhang, Sennrich 2019.
Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

}  // namespace lorry
