#pragma once

// Stochastic gradient descent with momentum: the whole rule, once (Sutskever et al. 2013 for Nesterov's form). It uses only
// operations that are rounded once, + - *, so that every execution of it gives the same bits.

#include "lorry/formula/scalar.h"

namespace lorry::formula {

/// What a user sets.
struct SgdSettings {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};

/// What a parameter carries from step to step beside its momentum buffer.
struct SgdProgress {
  double steps = 0;
};

/// What one step reads: trivially copyable, so that the block can live on a device. V is double in the block, and the value
/// type inside a kernel.
template <class V>
struct SgdHyper {
  V lr, weight_decay, momentum, gradient_weight;
  bool decays, nesterov, maximize;

  template <class To>
  LORRY_INLINE SgdHyper<To> as() const {
    return {To(lr), To(weight_decay), To(momentum), To(gradient_weight), decays, nesterov, maximize};
  }
  friend bool operator==(const SgdHyper&, const SgdHyper&) = default;
};

/// The hyper-parameters of the next step. The first one fills the buffer with the gradient itself, undampened, as PyTorch does.
LORRY_INLINE SgdHyper<double> advance(SgdProgress& progress, const SgdSettings& s) {
  const double gradient_weight = progress.steps == 0 ? 1.0 : 1.0 - s.dampening;
  progress.steps += 1;
  return {s.lr, s.weight_decay, s.momentum, gradient_weight, s.weight_decay != 0, s.nesterov, s.maximize};
}

/// states: the momentum buffer, zero before the first step; none without momentum.
template <bool kMomentum>
struct Sgd {
  static constexpr int kStates = kMomentum ? 1 : 0;

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, [[maybe_unused]] V* states, const H& h) const {
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.weight_decay * param;
    if constexpr (kMomentum) {
      V& buffer = states[0];
      buffer = h.momentum * buffer + h.gradient_weight * grad;
      grad = h.nesterov ? grad + h.momentum * buffer : buffer;
    }
    param = param - h.lr * grad;
  }
};

}  // namespace lorry::formula
