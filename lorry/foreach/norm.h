#pragma once

// Norms of lists, each tensor read once: kernels/list.h says in which order elements are added, which is the same
// on every device. Sums are f64. Tensors that are not dense are copied first, and an event says so.

#include <limits>
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
/// f64, as Norms::total. Tensors that are not dense are copied for the norm and scaled where they are. With
/// error_if_nonfinite the host waits for the norm, and one that is infinite or NaN throws ValueError and leaves the
/// tensors. Throws ValueError for a negative max_norm, ShapeError where two tensors share memory, and what norms
/// throws.
Tensor clip_norm_(const TensorList& x, double max_norm, double ord = 2, bool error_if_nonfinite = false);

// ---- a norm in two parts --------------------------------------------------------------------------------------------

// total_norm and clip_norm_ in steps that give the same bits, for a sum that others add to before it is used: the
// gradients of several GPUs have one norm.
//
//   const Tensor sum = foreach::power_sum(grads);       // all-reduce it here (by maximum where ord is infinity)
//   const auto [norm, factor] = foreach::finish_norm(sum, {.max_norm = 1});
//   foreach::scale_norm_(grads, factor);                // or hand the factor to an optimizer's step

/// The sum of |x|^ord over all elements, by default the sum of squares; the largest |x| for infinity.
/// 0-d f64 on the device of the first tensor (the default one for an empty list). Throws what norms throws.
Tensor power_sum(const TensorList& x, double ord = 2);

/// What is to be done with the sum of a norm.
struct NormFinish {
  double ord = 2;
  double max_norm = std::numeric_limits<double>::infinity();  ///< to clip to
  Tensor scale = {};            ///< 0-d f64: of the loss, so that gradients are to be divided by it; undefined: 1
  bool skip_nonfinite = false;  ///< the factor of a norm that is not finite is NaN: a step is to be left out
};
/// A norm, and what it asks for.
struct FinishedNorm {
  Tensor norm;    ///< sum^(1/ord) / scale: 0-d f64
  Tensor factor;  ///< by which elements are to be multiplied: 0-d f64, infinite where that is NaN
};
/// The norm and the factor to clip by from the sum of a norm, on its device; nothing waits. sum: 0-d f64. Throws
/// ValueError for a negative max_norm or ord <= 0, DTypeError, DeviceError.
FinishedNorm finish_norm(const Tensor& sum, const NormFinish& finish = {});

/// finish_norm(power_sum(x, finish.ord), finish), to the bit. Of tensors on one device it takes one pass. finish.scale
/// is on the device of the first tensor. Throws what these two throw.
FinishedNorm clip_factor(const TensorList& x, const NormFinish& finish = {});

/// Multiplies all tensors in place by the factor of finish_norm, as clip_norm_ does. factor: 0-d f64. Throws
/// DTypeError, and what clip_norm_ throws for tensors that it cannot write.
const TensorList& scale_norm_(const TensorList& x, const Tensor& factor);

// ---- reductions of each tensor --------------------------------------------------------------------------------------

// One a row of formula/list.def: the result of the operator for each tensor, 0-d, to the bit.
#define LORRY_LIST_REDUCTION(name, ...) TensorList name(const TensorList& x);
#include "lorry/formula/list.def"

}  // namespace lorry::foreach
