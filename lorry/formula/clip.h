#pragma once

// How a step multiplies its gradients once their common norm is known: without the loss scale, clipped, or not at all.

#include <limits>

#include "lorry/formula/scalar.h"

namespace lorry::formula {

/// By how much gradients of this norm are too long: min(1, max_norm / (norm + 1e-6)), as PyTorch clips. An infinite
/// max_norm never clips; a NaN stays one.
LORRY_INLINE double clip_coefficient(double norm, double max_norm) {
  if (max_norm - max_norm != 0) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient >= 1 ? 1 : coefficient;
}

struct Clipped {
  double norm;    ///< of the gradients without their scale
  double factor;  ///< of the gradients: see multiplier. NaN: the step is to be left out
};

/// `total` is the norm of gradients of a loss that was multiplied by `scale`. Where PyTorch would multiply by NaN the
/// factor is infinite.
LORRY_INLINE Clipped clip(double total, double scale, double max_norm, bool skip_nonfinite) {
  const double norm = total / scale;
  if (skip_nonfinite && norm - norm != 0) return {norm, norm - norm};
  const double factor = 1 / scale * clip_coefficient(norm, max_norm);
  return {norm, factor == factor ? factor : std::numeric_limits<double>::infinity()};
}

/// What every gradient is multiplied by, in the type of computation: the factor, or NaN where that is infinite. So all
/// of them become NaN, zeros and infinities too, and a rule cannot take an infinity's sign for a direction.
template <class V>
LORRY_INLINE V multiplier(const V& factor) {
  return factor + (factor - factor);
}

}  // namespace lorry::formula
