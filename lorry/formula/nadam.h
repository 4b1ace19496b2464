#pragma once

// NAdam: Adam with Nesterov's momentum (Dozat 2016), which grows towards beta1: in step t it is
// mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2).

#include "lorry/formula/power.h"
#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the running means of the gradient and of its square. Decoupled decay shrinks the parameter, otherwise decay
/// is added to the gradient.
struct NAdam {
  static constexpr const char* kName = "nadam";
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[] = {"exp_avg", "exp_avg_sq"};
  static constexpr unsigned kNotNegative = 0b10;

  static constexpr Logarithm kLogOf096{-0x1.4e69ed6d80eb3p-5, -0x1.067d54cb9a84cp-60};

  struct Settings {
    double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
    bool decoupled = false, maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"beta1", &Settings::beta1, Domain::below_one},
                                                    {"beta2", &Settings::beta2, Domain::below_one},
                                                    {"eps", &Settings::eps},
                                                    {"weight_decay", &Settings::weight_decay},
                                                    {"momentum_decay", &Settings::momentum_decay}};

  struct Progress {
    double steps = 0, beta2_power = 1;
    double decay_power = 1;  ///< 0.96^(t momentum_decay)
    double mu_product = 1;   ///< mu_1 mu_2 ... mu_t
  };
  static constexpr const char* kProgressNames[] = {"step", "beta2_power", "decay_power", "mu_product"};

  template <class V>
  struct Hyper {
    V weight_decay, lr_weight_decay, one_minus_beta1, beta2, one_minus_beta2, grad_step, mean_step, inv_sqrt_bias2, eps;
    bool decays_gradient, decays_param, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(weight_decay), f(lr_weight_decay), f(one_minus_beta1),
              f(beta2),        f(one_minus_beta2), f(grad_step),
              f(mean_step),    f(inv_sqrt_bias2),  f(eps),
              decays_gradient, decays_param,       maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    const double decay = power(kLogOf096, s.momentum_decay);
    const auto mu = [&](double decay_power) { return s.beta1 * (1 - 0.5 * decay_power); };
    progress.steps += 1;
    progress.beta2_power *= s.beta2;
    progress.decay_power *= decay;
    const double now = mu(progress.decay_power), next = mu(progress.decay_power * decay);
    progress.mu_product *= now;
    const bool decays = s.weight_decay != 0;
    return {s.weight_decay,
            s.lr * s.weight_decay,
            1 - s.beta1,
            s.beta2,
            1 - s.beta2,
            s.lr * (1 - now) / (1 - progress.mu_product),
            s.lr * next / (1 - progress.mu_product * next),
            1 / sqrt(1 - progress.beta2_power),
            s.eps,
            decays && !s.decoupled,
            decays && s.decoupled,
            s.maximize};
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
    param = param - (h.grad_step * grad + h.mean_step * mean) / (sqrt(square) * h.inv_sqrt_bias2 + h.eps);
  }
};

}  // namespace lorry::formula
