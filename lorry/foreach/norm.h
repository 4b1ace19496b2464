#pragma once

// Norms of lists, each tensor read once: kernels/list_norm.h says in which order elements are added, which is the same
// on every device. Sums are f64. Tensors that are not dense are copied first, and an event says so.

#include <optional>

#include "lorry/foreach/tensor_list.h"

namespace lorry::foreach {

/// The norms of a list.
struct Norms {
  TensorList per_tensor;  ///< 0-d, f64; views of one storage a device
  /// of all elements together: 0-d, f64, on the device of the first tensor (the default one for an empty list)
  Tensor total;
};

/// (sum |x|^ord)^(1/ord), and the largest |x| for infinity, of floating tensors. Throws ValueError unless ord > 0,
/// DTypeError, and GradError where gradients are recorded: there is no rule for them.
Norms norms(const TensorList& x, double ord = 2);
/// Of each tensor, in its dtype or in another. Where gradients are recorded it is the operator for each, which rounds
/// differently.
TensorList norm(const TensorList& x, double ord = 2, std::optional<DType> dtype = {});
/// Of all elements together: a 0-d f64.
Tensor total_norm(const TensorList& x, double ord = 2);

/// Scales all tensors together in place so that their common norm is at most max_norm: by min(1, max_norm / (norm +
/// 1e-6)). Nothing is written where that is 1; a norm of NaN makes all elements NaN. Returns the norm before: a 0-d
/// f64, as Norms::total. Tensors with gaps are copied for the norm and scaled where they are. With error_if_nonfinite
/// the host waits for the norm, and one that is infinite or NaN throws ValueError and leaves the tensors. Throws
/// ValueError for a negative max_norm, ShapeError where two tensors share memory, and what norms throws.
Tensor clip_norm_(const TensorList& x, double max_norm, double ord = 2, bool error_if_nonfinite = false);

/// The largest element of each tensor, 0-d; one reduction a tensor. Throws for a tensor without elements.
TensorList max(const TensorList& x);

}  // namespace lorry::foreach
