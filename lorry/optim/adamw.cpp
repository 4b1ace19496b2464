#include "lorry/optim/adamw.h"

#include "lorry/optim/domain.h"

namespace lorry::optim {
namespace {

template <class Options>
formula::AdamWBase::Settings settings_of(const Options& o, bool decoupled, const char* where) {
  const Domain domain(where);
  domain.not_negative("lr", o.lr);
  domain.below_one("beta1", o.beta1);
  domain.below_one("beta2", o.beta2);
  domain.not_negative("eps", o.eps);
  domain.not_negative("weight_decay", o.weight_decay);
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, decoupled, o.maximize};
}

const RuleTraits& rule(bool amsgrad) { return amsgrad ? rule_traits<formula::AdamW<true>>() : rule_traits<formula::AdamW<false>>(); }

kernels::Kept kept(bool masters) { return masters ? kernels::Kept::master : kernels::Kept::nothing; }

}  // namespace

AdamW::AdamW(const std::vector<NamedTensor>& params, const AdamWOptions& options, Execution execution) : AdamW({{params, options}}, execution) {}

AdamW::AdamW(const std::vector<Group<AdamWOptions>>& groups, Execution execution) : Optimizer("adamw", execution) {
  for (const auto& group : groups) add_param_group(group);
}

void AdamW::add_param_group(const Group<AdamWOptions>& group) {
  const auto settings = settings_of(group.options, /*decoupled=*/true, where());
  add_group(group.params, rule(group.options.amsgrad), &settings, kept(group.options.masters));
}

Adam::Adam(const std::vector<NamedTensor>& params, const AdamOptions& options, Execution execution) : Adam({{params, options}}, execution) {}

Adam::Adam(const std::vector<Group<AdamOptions>>& groups, Execution execution) : Optimizer("adam", execution) {
  for (const auto& group : groups) add_param_group(group);
}

void Adam::add_param_group(const Group<AdamOptions>& group) {
  const auto settings = settings_of(group.options, /*decoupled=*/false, where());
  add_group(group.params, rule(group.options.amsgrad), &settings, kept(group.options.masters));
}

}  // namespace lorry::optim
