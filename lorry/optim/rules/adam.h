#pragma once

// Adam and its variants: running means of the gradient and of its magnitude, corrected for their start at zero. The
// rules are in formula/adamw.h, adamax.h, nadam.h and radam.h. Domains: lr, eps, weight_decay, momentum_decay >= 0 and
// finite, 0 <= beta < 1.

#include "lorry/optim/optimizer_for.h"

namespace lorry::optim {

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 1e-2;  ///< shrinks the parameter by lr * weight_decay
  bool amsgrad = false, maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "adamw";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::AdamW>(amsgrad, {lr, beta1, beta2, eps, weight_decay, true, maximize});
  }
};

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< adds weight_decay * param to the gradient
  bool amsgrad = false, maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "adam";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::AdamW>(amsgrad, {lr, beta1, beta2, eps, weight_decay, false, maximize});
  }
};

struct AdamaxOptions {
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< adds weight_decay * param to the gradient
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "adamax";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::Adamax>({lr, beta1, beta2, eps, weight_decay, maximize});
  }
};

struct NAdamOptions {
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  ///< decay as AdamW's instead of Adam's
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "nadam";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::NAdam>(
        {lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled_weight_decay, maximize});
  }
};

struct RAdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< decay as AdamW's instead of Adam's
  bool maximize = false;
  Memory memory = {};
  static constexpr const char* kName = "radam";
  std::unique_ptr<detail::AnyRule> rule() const {
    return make_rule<formula::RAdam>({lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize});
  }
};

/// Adam with weight decay that shrinks the parameter itself. Loshchilov, Hutter 2019.
using AdamW = OptimizerFor<AdamWOptions>;
/// Steps by the running mean of gradients, divided by the root of the running mean of their squares. Kingma, Ba 2015.
using Adam = OptimizerFor<AdamOptions>;
/// Adam with a decaying maximum of the gradient's magnitude in place of the root. Kingma, Ba 2015, section 7.
using Adamax = OptimizerFor<AdamaxOptions>;
/// Adam with Nesterov's momentum. Dozat 2016.
using NAdam = OptimizerFor<NAdamOptions>;
/// Adam that uses the mean of squares only once its variance is small enough. Liu et al. 2020.
using RAdam = OptimizerFor<RAdamOptions>;

using AdamOptionsList = OptionsList<AdamWOptions, AdamOptions, AdamaxOptions, NAdamOptions, RAdamOptions>;

}  // namespace lorry::optim
