#pragma once

// Adagrad: each element's step shrinks by the sum of its squared gradients (Duchi, Hazan, Singer 2011, figure 1).

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the sum of squares, which begins at initial_accumulator_value.
struct Adagrad {
  static constexpr const char* kName = "adagrad";
  static constexpr int kStates = 1;
  static constexpr const char* kStateNames[] = {"sum"};
  static constexpr unsigned kNotNegative = 0b1;

  struct Settings {
    double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"lr_decay", &Settings::lr_decay},
                                                    {"weight_decay", &Settings::weight_decay},
                                                    {"initial_accumulator_value", &Settings::initial_accumulator_value},
                                                    {"eps", &Settings::eps}};

  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V weight_decay, step_size, eps;
    bool decays, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(weight_decay), f(step_size), f(eps), decays, maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    const double step_size = s.lr / (1 + progress.steps * s.lr_decay);
    progress.steps += 1;
    return {s.weight_decay, step_size, s.eps, s.weight_decay != 0, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings& s) { return s.initial_accumulator_value; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V& sum = states[0];
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.weight_decay * param;
    sum = sum + grad * grad;
    param = param - h.step_size * grad / (sqrt(sum) + h.eps);
  }
};

}  // namespace lorry::formula
