#pragma once

#include <limits>

#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// What a step does beside the update, in the same launches and without waiting for the device.
struct StepOptions {
  /// Gradients are scaled together to have at most this common norm. Where the norm is NaN all gradients become NaN.
  double max_norm = std::numeric_limits<double>::infinity();
  /// When the norm is infinite or NaN, parameters and states stay as they are and the step does not count.
  bool skip_nonfinite = false;
  bool zero_grad = false;  ///< gradients are filled with zeros afterwards, also those of a step that was skipped
  Tensor scale = {};  ///< of the loss: gradients are divided by it first. A 0-d f64 on the first parameter's device
};

}  // namespace lorry::optim
