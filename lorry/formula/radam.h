#pragma once

// RAdam: Adam that does without the mean square until enough gradients are in it (Liu et al. 2020, algorithm 2).

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the running means of the gradient and of its square. Decoupled decay shrinks the parameter, otherwise decay
/// is added to the gradient.
struct RAdam {
  static constexpr const char* kName = "radam";
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[] = {"exp_avg", "exp_avg_sq"};
  static constexpr unsigned kNotNegative = 0b10;

  struct Settings {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    bool decoupled = false, maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"beta1", &Settings::beta1, Domain::below_one},
                                                    {"beta2", &Settings::beta2, Domain::below_one},
                                                    {"eps", &Settings::eps},
                                                    {"weight_decay", &Settings::weight_decay}};

  struct Progress {
    double steps = 0, beta1_power = 1, beta2_power = 1;
  };
  static constexpr const char* kProgressNames[] = {"step", "beta1_power", "beta2_power"};

  template <class V>
  struct Hyper {
    V weight_decay, lr_weight_decay, one_minus_beta1, beta2, one_minus_beta2, step_size, eps, adapts;
    bool decays_gradient, decays_param, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {
          f(weight_decay), f(lr_weight_decay), f(one_minus_beta1), f(beta2), f(one_minus_beta2), f(step_size), f(eps),
          f(adapts),       decays_gradient,    decays_param,       maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    progress.beta1_power *= s.beta1;
    progress.beta2_power *= s.beta2;
    const double bias2 = 1 - progress.beta2_power;
    // The lengths of plain means that would vary as much as the mean square does in the end and now. The paper adapts
    // from 4 on.
    const double longest = 2 / (1 - s.beta2) - 1, length = longest - 2 * progress.steps * progress.beta2_power / bias2;
    const bool adapts = length > 5;
    double step_size = s.lr / (1 - progress.beta1_power);
    if (adapts)
      step_size *= sqrt(bias2) * sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    const bool decays = s.weight_decay != 0;
    return {s.weight_decay,     s.lr * s.weight_decay,  1 - s.beta1,           s.beta2,   1 - s.beta2, step_size, s.eps,
            adapts ? 1.0 : 0.0, decays && !s.decoupled, decays && s.decoupled, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V &mean = states[0], &square = states[1];
    if (h.maximize) grad = -grad;
    if (h.decays_gradient) grad = grad + h.weight_decay * param;
    if (h.decays_param) param = param - h.lr_weight_decay * param;
    mean = mean + h.one_minus_beta1 * (grad - mean);
    square = h.beta2 * square + h.one_minus_beta2 * grad * grad;
    const V step = h.step_size * mean;
    param = param - select(h.adapts > V(0), step / (sqrt(square) + h.eps), step);
  }
};

}  // namespace lorry::formula
