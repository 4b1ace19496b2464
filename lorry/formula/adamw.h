#pragma once

// Adam and AdamW: the whole rule, once (Kingma, Ba 2015, algorithm 1; decoupled decay: Loshchilov, Hutter 2019,
// algorithm 2; amsgrad: Reddi, Kale, Kumar 2018, algorithm 2).

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// What both forms share. Decoupled decay shrinks the parameter (AdamW); otherwise decay is added to the gradient
/// (Adam).
struct AdamWBase {
  static constexpr const char* kStateNames[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  static constexpr unsigned kNotNegative = 0b110;

  struct Settings {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    bool decoupled = true, maximize = false;
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
    V weight_decay, lr_weight_decay, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_bias2, eps;
    bool decays_gradient, decays_param, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(weight_decay),
              f(lr_weight_decay),
              f(one_minus_beta1),
              f(beta2),
              f(one_minus_beta2),
              f(step_size),
              f(inv_sqrt_bias2),
              f(eps),
              decays_gradient,
              decays_param,
              maximize};
    }
  };

  /// Corrects for the moments' start at zero.
  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
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
            1 / sqrt(1 - progress.beta2_power),
            s.eps,
            decays && !s.decoupled,
            decays && s.decoupled,
            s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }
};

/// states: the running means of the gradient and of its square and, for amsgrad, the largest of the latter.
template <bool kAmsgrad>
struct AdamW : AdamWBase {
  static constexpr const char* kName = kAmsgrad ? "adamw_amsgrad" : "adamw";
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
      const auto nan = square != square;  // it stays
      scale = largest = select((square > largest) | nan, square, largest);
    }
    param = param - h.step_size * mean / (sqrt(scale) * h.inv_sqrt_bias2 + h.eps);
  }
};

}  // namespace lorry::formula
