#pragma once

// Norms of lists, each tensor read once: kernels/list_norm.h says in which order elements are added, which is the same on every device.
// Sums are f64. Tensors with gaps are copied first, and the bell says so.

#include <optional>

#include "lorry/foreach/tensor_list.h"

namespace lorry::foreach {

struct Norms {
  TensorList per_tensor;  ///< 0-d, f64; views of one storage a device
  Tensor total;           ///< of all elements together: 0-d, f64, on the device of the first tensor (the default one for an empty list)
};

/// (sum |x|^ord)^(1/ord), and the largest |x| for infinity, of floating tensors. Throws ValueError unless ord > 0, DTypeError, and
/// GradError where gradients are recorded: there is no rule for them.
Norms norms(const TensorList& x, double ord = 2);
/// Of each tensor, in its dtype or in another. Where gradients are recorded it is the operator for each, which rounds differently.
TensorList norm(const TensorList& x, double ord = 2, std::optional<DType> dtype = {});
Tensor total_norm(const TensorList& x, double ord = 2);

/// The largest element of each tensor, 0-d; one reduction a tensor. Throws for a tensor without elements.
TensorList max(const TensorList& x);

}  // namespace lorry::foreach
