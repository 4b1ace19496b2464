#pragma once

// Where the gradient of a leaf is to lie: memory of somebody else, such as a part of a buffer that is sent to others.

#include <cstdint>
#include <functional>

#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

/// When a GradientObserver is called.
enum class Arrival : uint8_t {
  begins,    ///< before anything is written to the gradient; what it throws ends backward(), and nothing is written
  complete,  ///< all that the leaf gets in this backward is enqueued
};
using GradientObserver = std::function<void(Arrival)>;

/// From now on, a backward() that finds no gradient at the leaf computes it in `memory` where the rule of an operator
/// can (that of linear layers for their weights): then `memory` is the gradient, and later backwards add to it. Other
/// gradients lie elsewhere, as without a destination. Each time, `observer` is called on the thread of backward(), one
/// or more times when a gradient begins, and once when it is complete, while the rest of backward() is still to come.
/// An undefined `memory` ends that, and then nothing is thrown. Throws GradError for a tensor that is no leaf that
/// requires a gradient, ShapeError, DTypeError and DeviceError for memory that is not contiguous or not like the leaf.
void set_gradient_destination(const Tensor& leaf, const Tensor& memory, GradientObserver observer);

}  // namespace lorry::autograd
