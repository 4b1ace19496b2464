#include "lorry/optim/rules/adam.h"

#include "lorry/optim/rules/domain.h"

namespace lorry::optim {
namespace {

/// What all of them have.
template <class Options>
Domain checked(const Options& o) {
  const Domain domain(Options::kName);
  domain.not_negative("lr", o.lr);
  domain.below_one("beta1", o.beta1);
  domain.below_one("beta2", o.beta2);
  domain.not_negative("eps", o.eps);
  domain.not_negative("weight_decay", o.weight_decay);
  return domain;
}

template <class Options>
RuleChoice adam(const Options& o, bool decoupled) {
  checked(o);
  const formula::AdamWBase::Settings settings{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, decoupled, o.maximize};
  return o.amsgrad ? choose<formula::AdamW<true>>(settings) : choose<formula::AdamW<false>>(settings);
}

}  // namespace

RuleChoice AdamWOptions::choice() const { return adam(*this, true); }
RuleChoice AdamOptions::choice() const { return adam(*this, false); }

RuleChoice AdamaxOptions::choice() const {
  checked(*this);
  return choose<formula::Adamax>({lr, beta1, beta2, eps, weight_decay, maximize});
}

RuleChoice NAdamOptions::choice() const {
  checked(*this).not_negative("momentum_decay", momentum_decay);
  return choose<formula::NAdam>(
      {lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled_weight_decay, maximize});
}

RuleChoice RAdamOptions::choice() const {
  checked(*this);
  return choose<formula::RAdam>({lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize});
}

}  // namespace lorry::optim
