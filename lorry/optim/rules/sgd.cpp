#include "lorry/optim/rules/sgd.h"

#include "lorry/optim/rules/domain.h"

namespace lorry::optim {

RuleChoice SGDOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.not_negative("momentum", momentum);
  domain.not_negative("weight_decay", weight_decay);
  domain.finite("dampening", dampening);
  require<ValueError>(!nesterov || (momentum > 0 && dampening == 0),
                      "sgd: nesterov needs a momentum and no dampening; got momentum {} and dampening {}", momentum,
                      dampening);
  const formula::SgdBase::Settings settings{lr, momentum, dampening, weight_decay, nesterov, maximize};
  return momentum != 0 ? choose<formula::Sgd<true>>(settings) : choose<formula::Sgd<false>>(settings);
}

RuleChoice ASGDOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.not_negative("lambd", lambd);
  domain.not_negative("alpha", alpha);
  domain.finite("t0", t0);
  domain.not_negative("weight_decay", weight_decay);
  return choose<formula::Asgd>({lr, lambd, alpha, t0, weight_decay, maximize});
}

RuleChoice LionOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.below_one("beta1", beta1);
  domain.below_one("beta2", beta2);
  domain.not_negative("weight_decay", weight_decay);
  return choose<formula::Lion>({lr, beta1, beta2, weight_decay, maximize});
}

}  // namespace lorry::optim
