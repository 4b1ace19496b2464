#pragma once

// Adam and AdamW: the whole rule, once (Kingma, Ba 2015, algorithm 1; decoupled decay: Loshchilov, Hutter 2019, algorithm 2;
// amsgrad: Reddi, Kale, Kumar 2018, algorithm 2). It uses only operations that are rounded once, + - * / sqrt, and choices,
// so that every execution of it gives the same bits.

#include "lorry/formula/scalar.h"

namespace lorry::formula {

/// What a user sets. Decoupled decay shrinks the parameter (AdamW); otherwise decay is added to the gradient (Adam).
struct AdamWSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true, maximize = false;
};

/// What a parameter carries from step to step beside its moments. The powers of beta are running products: pow would round
/// differently on every platform.
struct AdamWProgress {
  double steps = 0, beta1_power = 1, beta2_power = 1;
};

/// What one step reads: trivially copyable, so that the block can live on a device. V is double in the block, and the value
/// type inside a kernel.
template <class V>
struct AdamWHyper {
  V weight_decay, lr_weight_decay, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_bias2, eps;
  bool decays_gradient, decays_param, maximize;

  template <class To>
  LORRY_INLINE AdamWHyper<To> as() const {
    return {To(weight_decay), To(lr_weight_decay), To(one_minus_beta1), To(beta2), To(one_minus_beta2), To(step_size), To(inv_sqrt_bias2),
            To(eps),          decays_gradient,     decays_param,        maximize};
  }
  friend bool operator==(const AdamWHyper&, const AdamWHyper&) = default;
};

/// The hyper-parameters of the next step, corrected for the moments' start at zero.
LORRY_INLINE AdamWHyper<double> advance(AdamWProgress& progress, const AdamWSettings& s) {
  progress.steps += 1;
  progress.beta1_power *= s.beta1;
  progress.beta2_power *= s.beta2;
  const bool decays = s.weight_decay != 0;
  return {s.weight_decay,
          s.lr * s.weight_decay,
          1 - s.beta1,
          s.beta2,
          1 - s.beta2,
          s.lr / (1 - progress.beta1_power),
          1 / __builtin_sqrt(1 - progress.beta2_power),
          s.eps,
          decays && !s.decoupled,
          decays && s.decoupled,
          s.maximize};
}

/// states: the running means of the gradient and of its square and, for amsgrad, the largest of the latter; all zero before
/// the first step.
template <bool kAmsgrad>
struct AdamW {
  static constexpr int kStates = kAmsgrad ? 3 : 2;

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V &mean = states[0], &square = states[1];
    if (h.maximize) grad = -grad;
    if (h.decays_gradient) grad = grad + h.weight_decay * param;
    if (h.decays_param) param = param - h.lr_weight_decay * param;
    mean = mean + h.one_minus_beta1 * (grad - mean);
    square = h.beta2 * square + h.one_minus_beta2 * grad * grad;
    V scale = square;
    if constexpr (kAmsgrad) {
      V& largest = states[2];
      scale = largest = select((square > largest) | (square != square), square, largest);  // a NaN stays one
    }
    param = param - h.step_size * mean / (sqrt(scale) * h.inv_sqrt_bias2 + h.eps);
  }
};

}  // namespace lorry::formula
