#include "lorry/optim/rules/adaptive.h"

#include "lorry/optim/rules/domain.h"

namespace lorry::optim {

RuleChoice AdagradOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.not_negative("lr_decay", lr_decay);
  domain.not_negative("weight_decay", weight_decay);
  domain.not_negative("initial_accumulator_value", initial_accumulator_value);
  domain.not_negative("eps", eps);
  return choose<formula::Adagrad>({lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize});
}

RuleChoice AdadeltaOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.between("rho", 0, rho, 1);
  domain.not_negative("eps", eps);
  domain.not_negative("weight_decay", weight_decay);
  return choose<formula::Adadelta>({lr, rho, eps, weight_decay, maximize});
}

RuleChoice RMSpropOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.not_negative("alpha", alpha);
  domain.not_negative("eps", eps);
  domain.not_negative("weight_decay", weight_decay);
  domain.not_negative("momentum", momentum);
  const formula::RMSpropBase::Settings settings{lr, alpha, eps, weight_decay, momentum, maximize};
  if (centered)
    return momentum != 0 ? choose<formula::RMSprop<true, true>>(settings)
                         : choose<formula::RMSprop<true, false>>(settings);
  return momentum != 0 ? choose<formula::RMSprop<false, true>>(settings)
                       : choose<formula::RMSprop<false, false>>(settings);
}

RuleChoice RpropOptions::choice() const {
  const Domain domain(kName);
  domain.not_negative("lr", lr);
  domain.positive("etaminus", etaminus);
  domain.below_one("etaminus", etaminus);
  domain.positive("etaplus", etaplus);
  require<ValueError>(etaplus > 1, "rprop: etaplus is out of range; got {}; expected a number > 1", etaplus);
  domain.not_negative("step_size_max", step_size_max);
  domain.between("step_size_min", 0, step_size_min, step_size_max);
  return choose<formula::Rprop>({lr, etaminus, etaplus, step_size_min, step_size_max, maximize});
}

}  // namespace lorry::optim
