#pragma once

// Lion: the sign of an interpolation between momentum and gradient (Chen et al. 2023, algorithm 2), with decoupled
// decay.

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the momentum.
struct Lion {
  static constexpr const char* kName = "lion";
  static constexpr int kStates = 1;
  static constexpr const char* kStateNames[] = {"exp_avg"};

  struct Settings {
    double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"beta1", &Settings::beta1, Domain::below_one},
                                                    {"beta2", &Settings::beta2, Domain::below_one},
                                                    {"weight_decay", &Settings::weight_decay}};

  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V lr, lr_weight_decay, one_minus_beta1, one_minus_beta2;
    bool decays, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(lr), f(lr_weight_decay), f(one_minus_beta1), f(one_minus_beta2), decays, maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    return {s.lr, s.lr * s.weight_decay, 1 - s.beta1, 1 - s.beta2, s.weight_decay != 0, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V& momentum = states[0];
    if (h.maximize) grad = -grad;
    if (h.decays) param = param - h.lr_weight_decay * param;
    const V span = grad - momentum, direction = momentum + h.one_minus_beta1 * span;
    // 0 and NaN stay what they are
    const V sign = select(direction > V(0), V(1), select(direction < V(0), V(-1), direction));
    param = param - h.lr * sign;
    momentum = momentum + h.one_minus_beta2 * span;
  }
};

}  // namespace lorry::formula
