#pragma once

// Factories. Every one takes a device and makes its tensor there; nothing passes through the host.

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Uninitialised, row-major. Throws ShapeError, OutOfMemory.
Tensor empty(const Dims& sizes, const Options& options = {});
/// Uninitialised with x's sizes and, when x is dense, its strides.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, DType dtype);
/// Uninitialised memory just large enough for the layout.
Tensor empty_strided(const Dims& sizes, const Dims& strides, const Options& options = {});

/// A 0-d CPU tensor that stands for a number in recorded calls: it promotes by kind alone.
Tensor wrapped_number(const Scalar& value);

}  // namespace lorry
