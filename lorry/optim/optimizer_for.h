#pragma once

// The class of every optimizer. A struct of options makes it Adam or Lion. Options have PyTorch's names and defaults,
// and say which rule (formula/rule.h) they choose, with which settings:
//
//   struct LionOptions {
//     double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
//     bool maximize = false;
//     Memory memory = {};
//     static constexpr const char* kName = "lion";
//     std::unique_ptr<detail::AnyRule> rule() const {
//       return make_rule<formula::Lion>({lr, beta1, beta2, weight_decay, maximize});
//     }
//   };
//   using Lion = OptimizerFor<LionOptions>;

#include "lorry/formula/optimizers.h"
#include "lorry/optim/optimizer.h"
#include "lorry/optim/rules/rule.h"

namespace lorry::optim {

/// A rule of formula::Rules. Instantiated in rules/rule.cpp, so that users' programs do not compile the rules again.
template <class Rule>
std::unique_ptr<detail::AnyRule> make_rule(const formula::SettingsOf<Rule>& settings);
/// The same of a rule that has a further state or not.
template <template <bool> class Rule>
std::unique_ptr<detail::AnyRule> make_rule(bool with_state, const formula::SettingsOf<Rule<true>>& settings) {
  return with_state ? make_rule<Rule<true>>(settings) : make_rule<Rule<false>>(settings);
}

template <class... Options>
struct OptionsList {
  /// Calls f with the default options of each.
  template <class F>
  static void each(const F& f) {
    (f(Options()), ...);
  }
};

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
    add_group(group.params, group.options.rule(), group.options.memory);
  }
};

}  // namespace lorry::optim
