// Settings that change between steps: every number of every rule, by its name.

#include "tests/optim/model.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

/// Steps an optimizer whose setting k is changed half way, by set() or by a new optimizer that has the other value from
/// the beginning and loads the state. Gives all bits at the end.
template <class Rule>
std::string bits_after(int variant, int k, Execution execution, DType dtype, bool by_set) {
  Model model(31, dtype);
  formula::SettingsOf<Rule> settings = settings_of<Rule>(variant);
  auto optimizer = std::make_unique<Any<Rule>>(model.params, settings, execution);
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      detail::TypedRule<Rule> rule(settings);
      const detail::AnyRule::Setting setting = rule.setting(k);
      const double value = other_value(setting);
      if (by_set) {
        optimizer->set(0, setting.name, value);
        EXPECT_EQ(optimizer->get(0, setting.name), value);
      } else {
        TensorMap state = optimizer->state_dict();
        for (auto& [name, x] : state) x = x.clone();
        setting.number = value;
        optimizer = std::make_unique<Any<Rule>>(model.params, rule.typed_settings(), execution);
        optimizer->load_state_dict(state);
      }
    }
    model.give_gradients();
    if (step % 2 == 0)
      optimizer->step();
    else
      (void)optimizer->step({.max_norm = 1});
  }
  return model.all_bits();
}

TEST(Settings, of_every_rule_change_between_steps_as_in_a_new_optimizer_that_loads_the_state) {
  formula::Rules::each([]<class Rule>() {
    const auto names = formula::SettingList<Rule>::all();
    for (const Execution execution : kExecutions)
      for (int variant = 0; variant < kVariants; ++variant)
        for (int k = 0; k < static_cast<int>(names.size()); ++k) {
          formula::SettingsOf<Rule> settings = settings_of<Rule>(variant);
          detail::TypedRule<Rule> changed(settings);
          changed.setting(k).number = other_value(changed.setting(k));
          if (changed.conflict() != nullptr) continue;
          for (const DType dtype : {kF32, kF64})
            EXPECT_TRUE(bits_after<Rule>(variant, k, execution, dtype, true) ==
                        bits_after<Rule>(variant, k, execution, dtype, false))
                << fmt::format("{} of {} by {}, {}, variant {}", names[static_cast<size_t>(k)].name, Rule::kName,
                               name(execution), dtype, variant);
        }
  });
}

TEST(Settings, that_change_change_what_a_step_does) {
  formula::Rules::each([]<class Rule>() {
    const auto all = formula::SettingList<Rule>::all();
    for (size_t k = 0; k < all.size(); ++k) {
      const std::string name = all[k].name;
      // What counts at the beginning alone, or beyond these steps, or with a momentum.
      const std::string rule_name = Rule::kName;
      if (name == "initial_accumulator_value" || name == "t0" || name.starts_with("step_size_")) continue;
      if ((rule_name == "rprop" && name == "lr") || (rule_name == "sgd" && name == "dampening")) continue;
      if (rule_name == "radam" && (name == "beta2" || name == "eps")) continue;
      Model before(31, kF32), after(31, kF32);
      const auto settings = settings_of<Rule>(1);
      Any<Rule> same(before.params, settings, Execution::fused), other(after.params, settings, Execution::fused);
      for (int step = 0; step < 5; ++step) {
        detail::TypedRule<Rule> rule(settings);
        if (step == 2 && rule.conflict() == nullptr) {
          const detail::AnyRule::Setting setting = rule.setting(static_cast<int>(k));
          const double value = other_value(setting);
          setting.number = value;
          rule.conflict() == nullptr ? other.set(name, value) : other.set_lr(0.5);
        }
        before.give_gradients(), after.give_gradients();
        same.step(), other.step();
      }
      EXPECT_FALSE(before.all_bits() == after.all_bits()) << name << " of " << Rule::kName;
    }
  });
}

TEST(Settings, reach_the_device_without_a_new_plan) {
  const Tensor a = parameter({1, 2});
  AdamW adamw({{"a", a}}, {}, Execution::foreach);
  a.set_grad(tensor_of({1, 1}, {2}));
  adamw.step();
  for (const char* name : {"lr", "beta1", "beta2", "eps", "weight_decay"}) EXPECT_GT(adamw.get(0, name), 0) << name;
  EXPECT_EQ(adamw.settings(), (std::vector<std::string>{"lr", "beta1", "beta2", "eps", "weight_decay"}));
  adamw.set("weight_decay", 0);
  adamw.step();
  EXPECT_EQ(adamw.get(0, "weight_decay"), 0);
}

TEST(Settings, that_cannot_change_are_refused_by_name) {
  const Tensor a = parameter({1});
  SGD plain({{"a", a}}, {.lr = 0.5});
  EXPECT_EQ(message<ValueError>([&] { plain.set("momentum", 0.9); }),
            "sgd: 'momentum' is not a changeable setting; expected one of lr, weight_decay, dampening; "
            "flags, and what decides on a rule's states, are fixed when the group is made");
  EXPECT_THROW(plain.set("nesterov", 1), ValueError);
  EXPECT_THROW((void)plain.get(0, "maximize"), ValueError);
  EXPECT_THROW(plain.set(1, "lr", 1), IndexError);
  SGD nesterov({{"a", a}}, {.lr = 0.5, .momentum = 0.9, .nesterov = true});
  EXPECT_EQ(message<ValueError>([&] { nesterov.set("momentum", -1); }),
            "sgd: momentum is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(message<ValueError>([&] { nesterov.set("dampening", 0.5); }),
            "sgd: nesterov needs a momentum and no dampening");
  EXPECT_EQ(nesterov.get(0, "dampening"), 0) << "what was refused is not set";
  EXPECT_EQ(nesterov.get(0, "momentum"), 0.9);
}

}  // namespace
}  // namespace lorry::optim::test
