#pragma once

// Norms of lists. Each tensor is read once. Sums are f64; the order in which elements are added is the same on every
// device (kernels/list.h). Tensors that are not dense are copied first, and an event says so.

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

/// (sum |x|^ord)^(1/ord), or for infinity the largest |x|, of floating tensors. Throws ValueError unless ord > 0,
/// DTypeError, and GradError if gradients would have to be recorded: there is no rule for them.
Norms norms(const TensorList& x, double ord = 2);
/// The norm of each tensor, in its dtype or in another. If gradients are recorded, the operator computes each, and
/// rounds differently.
TensorList norm(const TensorList& x, double ord = 2, std::optional<DType> dtype = {});
/// The norm of all elements together: a 0-d f64.
Tensor total_norm(const TensorList& x, double ord = 2);

/// Multiplies all tensors in place by min(1, max_norm / (norm + 1e-6)), so that their common norm is at most max_norm.
/// Writes nothing if that factor is 1; a norm of NaN makes all elements NaN. Returns the norm before: a 0-d f64, as
/// Norms::total. Tensors that are not dense are copied for the norm, and scaled in place. With error_if_nonfinite the
/// host waits for the norm; if it is infinite or NaN, this throws ValueError and leaves the tensors unchanged. Throws
/// ValueError for a negative max_norm, ShapeError if two tensors share memory, and what norms throws.
Tensor clip_norm_(const TensorList& x, double max_norm, double ord = 2, bool error_if_nonfinite = false);

// ---- a norm in two parts --------------------------------------------------------------------------------------------

// total_norm and clip_norm_ in steps, with the same bits. Between the steps the sum can be reduced over processes: the
// gradients of several GPUs have one norm.
//
//   const Tensor sum = foreach::power_sum(grads);       // all-reduce it here (by maximum where ord is infinity)
//   const auto [norm, factor] = foreach::finish_norm(sum, {.max_norm = 1});
//   foreach::scale_norm_(grads, factor);                // or hand the factor to an optimizer's step

/// The sum of |x|^ord over all elements, by default the sum of squares; the largest |x| for infinity.
/// 0-d f64 on the device of the first tensor (the default one for an empty list). Throws what norms throws.
Tensor power_sum(const TensorList& x, double ord = 2);

/// How the sum of a norm becomes a norm and a factor.
struct NormFinish {
  double ord = 2;
  double max_norm = std::numeric_limits<double>::infinity();  ///< to clip to
  Tensor scale = {};            ///< 0-d f64: the loss scale, by which gradients are divided; undefined: 1
  bool skip_nonfinite = false;  ///< if the norm is not finite, the factor is NaN, and a step with it does nothing
};
/// A norm, and the factor by which a clip multiplies.
struct FinishedNorm {
  Tensor norm;    ///< sum^(1/ord) / scale: 0-d f64
  Tensor factor;  ///< by which elements are multiplied: 0-d f64. If it is infinite, they become NaN
};
/// The norm and the clipping factor from the sum of a norm, on its device, without synchronisation. sum: 0-d f64.
/// Throws ValueError for a negative max_norm or ord <= 0, DTypeError, DeviceError.
FinishedNorm finish_norm(const Tensor& sum, const NormFinish& finish = {});

/// finish_norm(power_sum(x, finish.ord), finish), to the bit; one pass if all tensors are on one device. finish.scale
/// is on the device of the first tensor. Throws what these two throw.
FinishedNorm clip_factor(const TensorList& x, const NormFinish& finish = {});

/// Multiplies all tensors in place by the factor of finish_norm, as clip_norm_ does. factor: 0-d f64. Throws
/// DTypeError, and what clip_norm_ throws for tensors that it cannot write.
const TensorList& scale_norm_(const TensorList& x, const Tensor& factor);

// ---- reductions of each tensor --------------------------------------------------------------------------------------

// One for each row of formula/list.def: for each tensor the result of the operator, 0-d, to the bit.
#define LORRY_LIST_REDUCTION(name, ...) TensorList name(const TensorList& x);
#include "lorry/formula/list.def"

}  // namespace lorry::foreach
