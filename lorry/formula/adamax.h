#pragma once

// Adamax: Adam by the largest gradient of late instead of the mean square (Kingma, Ba 2015, algorithm 2).

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the running mean of the gradient, and its fading largest size. As PyTorch has it, eps is added to the size
/// of each gradient.
struct Adamax {
  static constexpr const char* kName = "adamax";
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[] = {"exp_avg", "exp_inf"};
  static constexpr unsigned kNotNegative = 0b10;

  struct Settings {
    double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"beta1", &Settings::beta1, Domain::below_one},
                                                    {"beta2", &Settings::beta2, Domain::below_one},
                                                    {"eps", &Settings::eps},
                                                    {"weight_decay", &Settings::weight_decay}};

  struct Progress {
    double steps = 0, beta1_power = 1;
  };
  static constexpr const char* kProgressNames[] = {"step", "beta1_power"};

  template <class V>
  struct Hyper {
    V weight_decay, one_minus_beta1, beta2, step_size, eps;
    bool decays, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(weight_decay), f(one_minus_beta1), f(beta2), f(step_size), f(eps), decays, maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    progress.beta1_power *= s.beta1;
    return {s.weight_decay, 1 - s.beta1,         s.beta2,   s.lr / (1 - progress.beta1_power),
            s.eps,          s.weight_decay != 0, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V &mean = states[0], &largest = states[1];
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.weight_decay * param;
    mean = mean + h.one_minus_beta1 * (grad - mean);
    const V faded = h.beta2 * largest, size = abs(grad) + h.eps;
    const auto nan = size != size;  // it stays
    largest = select((size > faded) | nan, size, faded);
    param = param - h.step_size * mean / largest;
  }
};

}  // namespace lorry::formula
