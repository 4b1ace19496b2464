#pragma once

// Stochastic gradient descent with momentum: the whole rule, once (Sutskever et al. 2013 for Nesterov's form).

#include "lorry/formula/rule.h"

namespace lorry::formula {

struct SgdBase {
  static constexpr const char* kStateNames[] = {"momentum_buffer"};

  struct Settings {
    double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false, maximize = false;
  };
  static constexpr Setting<Settings> kAllSettings[] = {{"lr", &Settings::lr},
                                                       {"weight_decay", &Settings::weight_decay},
                                                       {"dampening", &Settings::dampening, Domain::finite},
                                                       {"momentum", &Settings::momentum}};

  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V lr, weight_decay, momentum, gradient_weight;
    bool decays, nesterov, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(lr), f(weight_decay), f(momentum), f(gradient_weight), decays, nesterov, maximize};
    }
  };

  /// The first step fills the buffer with the gradient itself, undampened, as PyTorch does.
  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    const double gradient_weight = progress.steps == 0 ? 1.0 : 1.0 - s.dampening;
    progress.steps += 1;
    return {s.lr, s.weight_decay, s.momentum, gradient_weight, s.weight_decay != 0, s.nesterov, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }
};

/// states: the momentum buffer; none without momentum.
template <bool kMomentum>
struct Sgd : SgdBase {
  static constexpr const char* kName = kMomentum ? "sgd_momentum" : "sgd";
  static constexpr int kStates = kMomentum ? 1 : 0;
  static constexpr size_t kChangeable = kMomentum ? 4 : 3;
  static constexpr auto kSettings = std::span(kAllSettings).template first<kChangeable>();

  static const char* conflict(const Settings& s) {
    return kMomentum && s.nesterov && s.dampening != 0 ? "nesterov needs a momentum and no dampening" : nullptr;
  }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, [[maybe_unused]] V* states, const H& h) const {
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.weight_decay * param;
    if constexpr (kMomentum) {
      V& buffer = states[0];
      buffer = h.momentum * buffer + h.gradient_weight * grad;
      grad = h.nesterov ? grad + h.momentum * buffer : buffer;
    }
    param = param - h.lr * grad;
  }
};

}  // namespace lorry::formula
