#pragma once

// Optimizers that find a step size for each element by itself. The rules are in formula/adagrad.h, adadelta.h,
// rmsprop.h and rprop.h. Domains: numbers >= 0 and finite, 0 <= rho <= 1, 0 < etaminus < 1 < etaplus, step_size_min <=
// step_size_max. Decay adds weight_decay * param to the gradient.

#include "lorry/optim/optimizer_for.h"

namespace lorry::optim {

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "adagrad";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::Adagrad>({lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize});
  }
};

struct AdadeltaOptions {
  double lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "adadelta";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::Adadelta>({lr, rho, eps, weight_decay, maximize});
  }
};

struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  ///< divides by the standard deviation of the gradient instead of its root mean square
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "rmsprop";
  std::unique_ptr<detail::AnyRule> rule() const {
    const formula::RMSpropBase::Settings settings{lr, alpha, eps, weight_decay, momentum, maximize};
    if (momentum == 0)
      return centered ? make_rule<formula::RMSprop<true, false>>(settings)
                      : make_rule<formula::RMSprop<false, false>>(settings);
    return centered ? make_rule<formula::RMSprop<true, true>>(settings)
                    : make_rule<formula::RMSprop<false, true>>(settings);
  }
};

struct RpropOptions {
  double lr = 1e-2;                      ///< the first step size of every element
  double etaminus = 0.5, etaplus = 1.2;  ///< by what it shrinks and grows
  double step_size_min = 1e-6, step_size_max = 50;
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "rprop";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::Rprop>({lr, etaminus, etaplus, step_size_min, step_size_max, maximize});
  }
};

/// Divides by the root of the sum of all squared gradients. Duchi, Hazan, Singer 2011.
using Adagrad = OptimizerFor<AdagradOptions>;
/// Divides by the root of the mean square of gradients, times that of steps. Zeiler 2012.
using Adadelta = OptimizerFor<AdadeltaOptions>;
/// Divides by the root of the mean square of gradients. Hinton 2012.
using RMSprop = OptimizerFor<RMSpropOptions>;
/// Steps by the sign of the gradient, with a step size for each element. Riedmiller, Braun 1993.
using Rprop = OptimizerFor<RpropOptions>;

using AdaptiveOptionsList = OptionsList<AdagradOptions, AdadeltaOptions, RMSpropOptions, RpropOptions>;

}  // namespace lorry::optim
