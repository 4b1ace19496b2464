#pragma once

// softmax and log_softmax over the last dimension of contiguous rows, and their gradients.

#include "lorry/device/stream.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

struct SoftmaxKernels {
  /// out and x: contiguous [..., n] of one floating dtype.
  void (*softmax)(const Array& out, const Array& x, bool log, const Stream&) = nullptr;
  /// grad_x from the gradient of the output and the output itself.
  void (*softmax_backward)(const Array& grad_x, const Array& grad, const Array& out, bool log, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
