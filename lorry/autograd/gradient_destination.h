#pragma once

// Where the gradient of a leaf is to lie: memory of somebody else, such as a part of a buffer that is sent to others.

#include <functional>

#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

/// From now on, a backward() that finds no gradient at the leaf computes it in `memory`, or copies it there, and makes
/// `memory` the gradient; a later backward() adds to it. Each time, `arrived` is called on the thread of backward(),
/// when the work is enqueued. An undefined `memory` ends that. Throws GradError for a tensor that is no leaf that
/// requires a gradient, ShapeError, DTypeError and DeviceError for memory that is not contiguous or not like the leaf.
void set_gradient_destination(const Tensor& leaf, const Tensor& memory, std::function<void()> arrived);

}  // namespace lorry::autograd
