#pragma once

// ASGD: stochastic gradient descent and the mean of where it has been since step t0 (Polyak, Juditsky 1992), with the
// falling rate eta_t = lr / (1 + lambd lr t)^alpha (Xu 2011).

#include "lorry/formula/power.h"
#include "lorry/formula/rule.h"

namespace lorry::formula {

/// states: the mean; until t0, and as long as it has one term, it is the parameter itself.
struct Asgd {
  static constexpr const char* kName = "asgd";
  static constexpr int kStates = 1;
  static constexpr const char* kStateNames[] = {"ax"};

  struct Settings {
    double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kSettings[] = {{"lr", &Settings::lr},
                                                    {"lambd", &Settings::lambd},
                                                    {"alpha", &Settings::alpha},
                                                    {"t0", &Settings::t0, Domain::finite},
                                                    {"weight_decay", &Settings::weight_decay}};

  /// eta and mu are found after a step for the next one, from the lr of that time, as PyTorch does: a new lr is felt
  /// one step late.
  struct Progress {
    double steps = 0;
    double eta = 0;  ///< before the first step: lr
    double mu = 1;   ///< one over the number of terms of the mean
  };
  static constexpr const char* kProgressNames[] = {"step", "eta", "mu"};

  template <class V>
  struct Hyper {
    V eta, decay, mu, mean_decay;
    bool decays, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(eta), f(decay), f(mu), f(mean_decay), decays, maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    const double eta = progress.steps == 0 ? s.lr : progress.eta, mu = progress.mu, decay = s.lambd + s.weight_decay;
    progress.steps += 1;
    progress.eta = s.lr / power(1 + s.lambd * s.lr * progress.steps, s.alpha);
    const double terms = progress.steps - s.t0;
    progress.mu = terms > 1 ? 1 / terms : 1;
    return {eta, decay, mu, mu == 1 ? 0.0 : 1.0, decay != 0, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V& mean = states[0];
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.decay * param;
    param = param - h.eta * grad;
    mean = h.mean_decay * mean;  // a mean of one term forgets what it was, exactly
    mean = mean + h.mu * (param - mean);
  }
};

}  // namespace lorry::formula
