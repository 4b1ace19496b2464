#pragma once

// The class of every optimizer. What makes it Adam or Lion is a struct of options, in a user's terms and with PyTorch's
// names and defaults, that comes to a rule (formula/rule.h) and its settings:
//
//   struct LionOptions {
//     double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
//     Memory memory = {};
//     static constexpr const char* kName = "lion";
//     RuleChoice choice() const;                        // throws ValueError for options out of their domain
//   };
//   using Lion = OptimizerFor<LionOptions>;

#include "lorry/optim/optimizer.h"
#include "lorry/optim/rule.h"

namespace lorry::optim {

/// A rule and what its settings are.
struct RuleChoice {
  const RuleTraits* rule;
  alignas(8) std::byte settings[kMaxSettings];
};

template <class Rule>
RuleChoice choose(const formula::SettingsOf<Rule>& settings) {
  RuleChoice choice{&rule_traits<Rule>(), {}};
  std::memcpy(choice.settings, &settings, sizeof(settings));
  return choice;
}

/// Throws ValueError for options out of their domain, and what Optimizer::add_group throws for parameters.
template <class Options>
class OptimizerFor : public Optimizer {
 public:
  explicit OptimizerFor(const std::vector<NamedTensor>& params, const Options& options = {},
                        Execution execution = Execution::automatic)
      : OptimizerFor(std::vector<Group<Options>>{{params, options}}, execution) {
    require_parameters();
  }
  /// Parameters without names are called "0", "1", ... in messages and state_dict.
  explicit OptimizerFor(const std::vector<Tensor>& params, const Options& options = {},
                        Execution execution = Execution::automatic)
      : OptimizerFor(numbered(params), options, execution) {}
  explicit OptimizerFor(const std::vector<Group<Options>>& groups, Execution execution = Execution::automatic)
      : Optimizer(Options::kName, execution) {
    for (const auto& group : groups) add_param_group(group);
  }
  void add_param_group(const Group<Options>& group) {
    const RuleChoice choice = group.options.choice();
    add_group(group.params, *choice.rule, choice.settings, group.options.memory);
  }
};

}  // namespace lorry::optim
