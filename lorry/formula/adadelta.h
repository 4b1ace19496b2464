#pragma once

// Adadelta: steps as large as the last ones were, by the ratio of two running means of squares (Zeiler 2012, algorithm
// 1).

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the running means of the squared gradient and of the squared step, the latter before it is multiplied by lr.
struct Adadelta {
  static constexpr const char* kName = "adadelta";
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[] = {"square_avg", "acc_delta"};
  static constexpr unsigned kNotNegative = 0b11;

  struct Settings {
    double lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"rho", &Settings::rho, Domain::unit_interval},
                                                    {"eps", &Settings::eps},
                                                    {"weight_decay", &Settings::weight_decay}};

  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V weight_decay, rho, one_minus_rho, lr, eps;
    bool decays, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(weight_decay), f(rho), f(one_minus_rho), f(lr), f(eps), decays, maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    return {s.weight_decay, s.rho, 1 - s.rho, s.lr, s.eps, s.weight_decay != 0, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V &square = states[0], &square_step = states[1];
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.weight_decay * param;
    square = h.rho * square + h.one_minus_rho * grad * grad;
    // one root of the ratio would underflow sooner
    const V step = sqrt(square_step + h.eps) / sqrt(square + h.eps) * grad;
    square_step = h.rho * square_step + h.one_minus_rho * step * step;
    param = param - h.lr * step;
  }
};

}  // namespace lorry::formula
