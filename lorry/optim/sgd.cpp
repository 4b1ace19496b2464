#include "lorry/optim/sgd.h"

#include <cmath>

#include "lorry/optim/domain.h"

namespace lorry::optim {

SGD::SGD(const std::vector<NamedTensor>& params, const SGDOptions& options, Execution execution) : SGD({{params, options}}, execution) {}

SGD::SGD(const std::vector<Group<SGDOptions>>& groups, Execution execution) : Optimizer("sgd", execution) {
  for (const auto& group : groups) add_param_group(group);
}

void SGD::add_param_group(const Group<SGDOptions>& group) {
  const SGDOptions& o = group.options;
  const Domain domain(where());
  domain.not_negative("lr", o.lr);
  domain.not_negative("momentum", o.momentum);
  domain.not_negative("weight_decay", o.weight_decay);
  require<ValueError>(std::isfinite(o.dampening), "sgd: dampening is out of range; got {}; expected a finite number", o.dampening);
  require<ValueError>(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "sgd: nesterov needs a momentum and no dampening; got momentum {} and dampening {}",
                      o.momentum, o.dampening);
  const formula::SgdBase::Settings settings{o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize};
  add_group(group.params, o.momentum != 0 ? rule_traits<formula::Sgd<true>>() : rule_traits<formula::Sgd<false>>(), &settings,
            o.masters ? kernels::Kept::master : kernels::Kept::nothing);
}

}  // namespace lorry::optim
