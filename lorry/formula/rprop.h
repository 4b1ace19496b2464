#pragma once

// Rprop: a step size for each element, which grows while its gradient keeps its sign and shrinks when that turns
// (Riedmiller, Braun 1993; the form that forgets a gradient which turned instead of taking the step back: Igel, Huesken
// 2000, iRprop-).

#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the last gradient, and the step size, which begins at lr. After that lr does nothing. A NaN has no sign: it
/// moves nothing.
struct Rprop {
  static constexpr const char* kName = "rprop";
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[] = {"prev", "step_size"};
  static constexpr unsigned kNotNegative = 0b10;

  struct Settings {
    double lr = 1e-2, etaminus = 0.5, etaplus = 1.2, step_size_min = 1e-6, step_size_max = 50;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"etaminus", &Settings::etaminus, Domain::inside_unit},
                                                    {"etaplus", &Settings::etaplus, Domain::above_one},
                                                    {"step_size_min", &Settings::step_size_min},
                                                    {"step_size_max", &Settings::step_size_max}};

  static const char* conflict(const Settings& s) {
    return s.step_size_min > s.step_size_max ? "step_size_min is out of range; expected at most step_size_max"
                                             : nullptr;
  }

  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V etaminus, etaplus, least, largest;
    bool maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(etaminus), f(etaplus), f(least), f(largest), maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    return {s.etaminus, s.etaplus, s.step_size_min, s.step_size_max, s.maximize};
  }

  static LORRY_INLINE double first_state(int k, const Settings& s) { return k == 1 ? s.lr : 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V &last = states[0], &size = states[1];
    if (h.maximize) grad = -grad;
    const V agreement = grad * last;
    const auto turned = agreement < V(0);
    size = size * select(agreement > V(0), h.etaplus, select(turned, h.etaminus, V(1)));
    size = select(size < h.least, h.least, size);
    size = select(size > h.largest, h.largest, size);
    last = select(turned, V(0), grad);
    param = param - select(last > V(0), size, select(last < V(0), -size, V(0)));
  }
};

}  // namespace lorry::formula
