#pragma once

// Optimizers that step against the gradient, its running mean or its sign. The rules are in formula/sgd.h, asgd.h and
// lion.h. Domains: lr, momentum, weight_decay, lambd, alpha >= 0 and finite, 0 <= beta < 1, dampening and t0 finite;
// nesterov needs a momentum and no dampening.

#include "lorry/optim/optimizer_for.h"

namespace lorry::optim {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0;
  double weight_decay = 0;  ///< adds weight_decay * param to the gradient
  bool nesterov = false, maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "sgd";
  std::unique_ptr<detail::AnyRule> rule() const {
    require<ValueError>(!nesterov || momentum != 0, "sgd: nesterov needs a momentum and no dampening");
    return make_rule<formula::Sgd>(momentum != 0, {lr, momentum, dampening, weight_decay, nesterov, maximize});
  }
};

struct ASGDOptions {
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75;
  double t0 = 1e6;          ///< the step from which on parameters are averaged
  double weight_decay = 0;  ///< adds weight_decay * param to the gradient
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "asgd";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::Asgd>({lr, lambd, alpha, t0, weight_decay, maximize});
  }
};

struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  ///< shrinks the parameter by lr * weight_decay
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "lion";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::Lion>({lr, beta1, beta2, weight_decay, maximize});
  }
};

/// Steps against the gradient, or with momentum against its running mean.
using SGD = OptimizerFor<SGDOptions>;
/// SGD that averages its parameters from step t0 on. Polyak, Juditsky 1992.
using ASGD = OptimizerFor<ASGDOptions>;
/// Steps against the sign of a running mean. Chen et al. 2023.
using Lion = OptimizerFor<LionOptions>;

using SgdOptionsList = OptionsList<SGDOptions, ASGDOptions, LionOptions>;

}  // namespace lorry::optim
