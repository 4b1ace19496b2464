#pragma once

// Every rule alike: settings that use all that a rule has, and an optimizer of any rule.

#include "lorry/optim/optimizer.h"
#include "lorry/optim/rules/typed_rule.h"

namespace lorry::optim::test {

inline constexpr int kVariants = 2;

/// Settings of a rule: 0 is near its defaults, 1 has every option switched on that the rule knows.
template <class Rule>
formula::SettingsOf<Rule> settings_of(int variant) {
  formula::SettingsOf<Rule> s;
  s.lr = 0.01;
  if constexpr (requires { s.momentum; }) s.momentum = 0.9;
  if (variant == 0) return s;
  s.maximize = true;
  if constexpr (requires { s.weight_decay; }) s.weight_decay = 0.1;
  if constexpr (requires { s.decoupled; }) s.decoupled = !s.decoupled;
  if constexpr (requires { s.nesterov; }) s.nesterov = true;
  if constexpr (requires { s.lr_decay; }) s.lr_decay = 0.01;
  if constexpr (requires { s.initial_accumulator_value; }) s.initial_accumulator_value = 0.25;
  if constexpr (requires { s.t0; }) s.t0 = 2;
  return s;
}

/// Another value of the same domain, far enough from the first to change bits.
inline double other_value(const detail::AnyRule::Setting& setting) {
  switch (setting.domain) {
    case formula::Domain::below_one:
    case formula::Domain::unit_interval:
    case formula::Domain::inside_unit:
      return setting.number == 0.625 ? 0.75 : 0.625;
    case formula::Domain::above_one:
      return setting.number + 0.5;
    default:
      return setting.number < 1e-3 ? 0.0625 : setting.number / 2;
  }
}

/// The optimizer of one rule, whichever it is.
template <class Rule>
class Any : public Optimizer {
 public:
  using Settings = formula::SettingsOf<Rule>;
  Any(const std::vector<NamedTensor>& params, const Settings& settings, Execution execution, const Memory& memory = {})
      : Optimizer(Rule::kName, execution) {
    add(params, settings, memory);
  }
  void add(const std::vector<NamedTensor>& params, const Settings& settings, const Memory& memory = {}) {
    add_group(params, std::make_unique<detail::TypedRule<Rule>>(settings), memory);
  }
};

/// All give the same bits.
inline constexpr Execution kExecutions[] = {Execution::loop, Execution::foreach, Execution::fused, Execution::compiled};

}  // namespace lorry::optim::test
