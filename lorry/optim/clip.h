#pragma once

// Norms of gradients, and clipping in place. Parameters without a gradient are skipped. A gradient that belongs to
// several parameters, or a parameter that is listed twice, counts once. Gradients may have any dtypes and devices.
// Clipping throws ShapeError if two gradients share part of their memory.

#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// The common norm of all elements of `tensors`: a 0-d f64 on the device of the first, computed as clip_grad_norm_
/// does.
Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type = 2.0);

/// Scales all gradients together so that their common norm is at most max_norm: by min(1, max_norm / (norm + 1e-6)).
/// norm_type: any p > 0, or infinity. Returns the norm before scaling, as get_total_norm does. It is accumulated in
/// f64, in an order that does not depend on the number of threads. If the norm is not finite, the gradients become NaN
/// or zero, as in PyTorch; with error_if_nonfinite it throws ValueError instead and leaves them. Throws ValueError for
/// a negative max_norm or a norm_type <= 0.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);

/// Clamps every element of every gradient to [-clip_value, clip_value]. Throws ValueError unless clip_value > 0.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace lorry::optim
