#pragma once

// RMSprop: the gradient over the root of its running mean square (Tieleman, Hinton 2012, lecture 6.5), or over its
// running standard deviation (Graves 2013, eq. 38 to 41), the quotient with momentum or without.

#include "lorry/formula/rule.h"

namespace lorry::formula {

struct RMSpropBase {
  struct Settings {
    double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
    bool maximize = false;
  };
  static constexpr Setting<Settings> kAllSettings[] = {{"lr", &Settings::lr},
                                                       {"alpha", &Settings::alpha},
                                                       {"eps", &Settings::eps},
                                                       {"weight_decay", &Settings::weight_decay},
                                                       {"momentum", &Settings::momentum}};

  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V weight_decay, alpha, one_minus_alpha, lr, eps, momentum;
    bool decays, maximize;

    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(weight_decay), f(alpha), f(one_minus_alpha), f(lr), f(eps), f(momentum), decays, maximize};
    }
  };

  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    return {s.weight_decay, s.alpha, 1 - s.alpha, s.lr, s.eps, s.momentum, s.weight_decay != 0, s.maximize};
  }

  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }
};

/// states: the running mean of the squared gradient, for the centered form that of the gradient, and the momentum
/// buffer where there is one. Where a gradient hardly changes, rounding may leave a variance below zero: its root is a
/// NaN, as in PyTorch.
template <bool kCentered, bool kMomentum>
struct RMSprop : RMSpropBase {
  static constexpr const char* kName = kCentered ? (kMomentum ? "rmsprop_centered_momentum" : "rmsprop_centered")
                                                 : (kMomentum ? "rmsprop_momentum" : "rmsprop");
  static constexpr int kStates = 1 + kCentered + kMomentum;
  static constexpr size_t kChangeable = kMomentum ? 5 : 4;
  static constexpr auto kSettings = std::span(kAllSettings).template first<kChangeable>();
  static constexpr const char* kStateNames[] = {"square_avg", kCentered ? "grad_avg" : "momentum_buffer",
                                                "momentum_buffer"};
  static constexpr unsigned kNotNegative = 0b1;

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    V& square = states[0];
    if (h.maximize) grad = -grad;
    if (h.decays) grad = grad + h.weight_decay * param;
    square = h.alpha * square + h.one_minus_alpha * grad * grad;
    V scale = square;
    if constexpr (kCentered) {
      V& mean = states[1];
      mean = mean + h.one_minus_alpha * (grad - mean);
      scale = square - mean * mean;
    }
    scale = sqrt(scale) + h.eps;
    if constexpr (kMomentum) {
      V& buffer = states[1 + kCentered];
      buffer = h.momentum * buffer + grad / scale;
      param = param - h.lr * buffer;
    } else {
      param = param - h.lr * grad / scale;
    }
  }
};

}  // namespace lorry::formula
