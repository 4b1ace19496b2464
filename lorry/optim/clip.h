#pragma once

// Norms of gradients, and clipping, in place over the gradients of a list of parameters; parameters without a gradient
// are passed over, and a gradient that several of them have, or a parameter that is listed twice, counts once.
// Gradients may be of any dtypes and devices. Where two of them share part of their memory clipping throws ShapeError.

#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// The common norm of all elements of `tensors`, which are only read: a 0-d f64 on the first one's device, computed as
/// below.
Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type = 2.0);

/// Scales all gradients together so that their common norm is at most max_norm: by min(1, max_norm / (norm + 1e-6)).
/// norm_type: any p > 0, or infinity. Returns the norm before scaling, as get_total_norm; it is accumulated in f64 in
/// an order that does not depend on the number of threads. A norm that is not finite spoils the gradients, as in
/// PyTorch, or with error_if_nonfinite throws ValueError and leaves them. Throws ValueError for a negative max_norm or
/// a norm_type <= 0.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);

/// Clamps every element of every gradient to [-clip_value, clip_value]. Throws ValueError unless clip_value > 0.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace lorry::optim
