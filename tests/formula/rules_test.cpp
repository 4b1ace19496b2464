// Where every optimizer's rule arrives, against PyTorch's optimizers in f64 (stored by
// tests/peers/make_rule_values.py), and Lion's, which PyTorch has not, against a plain loop that follows the paper. A
// rule runs as kernels run it: by a HyperBlock, which alone knows the step.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lorry/formula/optimizers.h"
#include "tests/support/rule_values.h"

namespace lorry::formula {
namespace {

using lorry::test::Json;
using Numbers = lorry::test::RuleNumbers;
constexpr int kCount = lorry::test::kRuleParameters;

/// Calls f.operator()<Rule>() for the rule of that name.
template <class F>
void with_rule(const std::string& name, const F& f) {
  bool found = false;
  Rules::each([&]<class Rule>() {
    if (name != Rule::kName) return;
    found = true;
    f.template operator()<Rule>();
  });
  ASSERT_TRUE(found) << name;
}

/// PyTorch's options. What a rule does not have fails.
template <class Rule>
SettingsOf<Rule> settings_of(const std::string& optimizer, Json options) {
  for (const char* chosen_by_the_type : {"amsgrad", "centered"}) options.erase(chosen_by_the_type);
  // one rule, and another default than Adam's
  if (optimizer == "AdamW" && !options.contains("weight_decay")) options["weight_decay"] = 0.01;
  SettingsOf<Rule> s;
  const Json left = lorry::test::take_options(options, s);
  EXPECT_TRUE(left.empty()) << Rule::kName << " has no " << left;
  if (optimizer == "Adam" || optimizer == "AdamW")
    if constexpr (requires { s.decoupled; }) s.decoupled = optimizer == "AdamW";
  return s;
}

/// Parameters on their way, and how large they and their states have been.
template <class Rule, class C>
struct Walk {
  Walk(const SettingsOf<Rule>& settings, const std::vector<double>& start)
      : params(start.begin(), start.end()), sizes(start.size()) {
    states.resize(start.size());
    hyper_block.settings = settings;
    hyper_block.running = 1;
    hyper_block.refresh();
    for (auto& own : states)
      for (int k = 0; k < Rule::kStates; ++k) own[k] = static_cast<C>(Rule::first_state(k, settings));
  }
  void step(double lr, const std::vector<double>& grad) {
    if (hyper_block.settings.lr != lr) {
      hyper_block.settings.lr = lr;
      hyper_block.refresh();
    }
    for (size_t i = 0; i < params.size(); ++i) {
      Rule()(params[i], static_cast<C>(grad[i]), states[i].data(), hyper_block.hyper);
      sizes[i][0] = std::max<double>(sizes[i][0], std::fabs(params[i]));
      for (int k = 0; k < Rule::kStates; ++k)
        sizes[i][k + 1] = std::max<double>(sizes[i][k + 1], std::fabs(states[i][k]));
    }
    hyper_block.advance();
  }

  HyperBlock<Rule, C> hyper_block;
  std::vector<C> params;
  std::vector<std::array<C, 3>> states;
  std::vector<std::array<double, 4>> sizes;
};

/// The largest differences from PyTorch's f64 on the way, relative to the largest size so far: those of parameters and
/// of states.
template <class Rule, class C>
std::array<double, 2> differences(const Json& test, const Json& steps) {
  Numbers numbers;
  const std::vector<double> start = numbers.start();
  const std::string kind = test["optimizer"];
  const auto settings = settings_of<Rule>(kind, test["options"]);
  Walk<Rule, C> walk(settings, start);
  std::array<double, 2> worst{};
  const auto compare = [&](double& most, double ours, double theirs, double size) {
    const double off = ours == theirs ? 0 : std::fabs(ours - theirs) / size;
    most = off <= most ? most : off;  // NaN is more
  };
  const int last = steps.back();
  for (int step = 0, snapshot = 0; step < last; ++step) {
    walk.step(lorry::test::rule_lr(test, settings.lr, step), numbers.gradient(kind));
    if (step + 1 != steps[snapshot]) continue;
    for (int i = 0; i < kCount; ++i)
      compare(worst[0], walk.params[i], test["snapshots"][snapshot][i], walk.sizes[i][0]);
    ++snapshot;
  }
  EXPECT_EQ(test["states"].size(), size_t{Rule::kStates}) << Rule::kName;
  for (int k = 0; k < Rule::kStates; ++k)
    for (int i = 0; i < kCount; ++i)
      compare(worst[1], walk.states[i][k], test["states"].at(Rule::kStateNames[k])[i], walk.sizes[i][k + 1]);
  return worst;
}

TEST(Rules, every_option_arrives_where_pytorch_does) {
  const Json data = lorry::test::rule_values();
  std::set<std::string> tested = lorry::test::kWithoutPyTorch;
  for (const Json& test : data["cases"]) {
    const std::string rule = test["rule"];
    with_rule(rule, [&]<class Rule>() {
      const auto exact = differences<Rule, double>(test, data["steps"]),
                 rounded = differences<Rule, float>(test, data["steps"]);
      EXPECT_LT(exact[0], 1e-12) << rule << " " << test["options"];
      EXPECT_LT(exact[1], 1e-12) << rule << " " << test["options"];
      // A hundred stored results, each half a unit off: steps of one direction and size are all rounded to the same
      // side.
      EXPECT_LT(rounded[0], 100 * 0x1p-24) << rule << " " << test["options"];
      EXPECT_LT(rounded[1], 100 * 0x1p-24) << rule << " " << test["options"];
    });
    tested.insert(rule);
  }
  std::set<std::string> rules;
  Rules::each([&]<class Rule>() { rules.insert(Rule::kName); });
  EXPECT_EQ(rules.size(), size_t{Rules::kCount}) << "two rules share a name";
  EXPECT_EQ(tested, rules) << "every rule has values of PyTorch's, or is named in kWithoutPyTorch";
}

double number(const Json& x) {
  return x.is_string() ? std::strtod(x.get<std::string>().c_str(), nullptr) : x.get<double>();
}

TEST(Rules, nan_and_infinite_gradients_show_as_in_pytorch) {
  const Json data = lorry::test::rule_values();
  const Json& grads = data["special"];
  for (const Json& test : data["cases"]) {
    with_rule(test["rule"], [&]<class Rule>() {
      const auto settings = settings_of<Rule>(test["optimizer"], test["options"]);
      Walk<Rule, double> walk(settings, std::vector<double>(grads.size(), 1.0));
      for (size_t step = 0; step < 3; ++step) {
        std::vector<double> grad;
        for (const Json& element : grads) grad.push_back(number(element[step]));
        walk.step(settings.lr, grad);
        for (size_t i = 0; i < grads.size(); ++i) {
          const double ours = walk.params[i], theirs = number(test["special"][step][i]);
          const bool same = std::isfinite(theirs) ? std::fabs(ours - theirs) < 1e-12
                            : std::isnan(theirs)  ? std::isnan(ours)
                                                  : ours == theirs;
          EXPECT_TRUE(same) << Rule::kName << test["options"] << " step " << step << " element " << i << ": " << ours
                            << " for " << theirs;
        }
      }
    });
  }
}

TEST(Rules, lion_follows_the_paper) {
  for (const bool maximize : {false, true})
    for (const double decay : {0.0, 0.3}) {
      const Lion::Settings s{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = decay, .maximize = maximize};
      Numbers numbers;
      std::vector<double> p = numbers.start(), m(kCount, 0.0);
      Walk<Lion, double> exact(s, p);
      Walk<Lion, float> rounded(s, p);
      for (int step = 0; step < 100; ++step) {
        const double lr = s.lr / (1 + step % 4);
        const std::vector<double> grad = numbers.gradient("Lion");
        exact.step(lr, grad);
        rounded.step(lr, grad);
        for (int i = 0; i < kCount; ++i) {
          const double g = maximize ? -grad[i] : grad[i];
          const double c = s.beta1 * m[i] + (1 - s.beta1) * g;
          p[i] -= lr * ((c > 0) - (c < 0) + decay * p[i]);
          m[i] = s.beta2 * m[i] + (1 - s.beta2) * g;
        }
      }
      for (int i = 0; i < kCount; ++i) {
        EXPECT_NEAR(exact.params[i], p[i], 1e-12 * exact.sizes[i][0]);
        EXPECT_NEAR(exact.states[i][0], m[i], 1e-12 * exact.sizes[i][1]);
        EXPECT_NEAR(rounded.params[i], p[i], 100 * 0x1p-24 * exact.sizes[i][0]);
      }
    }
  Walk<Lion, double> walk({}, {1.0, 1.0});
  walk.step(1e-4, {NAN, 0.0});
  EXPECT_TRUE(std::isnan(walk.params[0]));
  EXPECT_EQ(walk.params[1], 1.0);
}

TEST(Rules, a_clock_that_is_set_back_takes_the_same_steps_again) {
  Rules::each([&]<class Rule>() {
    const SettingsOf<Rule> settings;
    Walk<Rule, float> whole(settings, {1.0, -2.0, 0.5}), parts = whole;
    std::mt19937_64 random(4);
    std::normal_distribution<double> normal;
    for (int step = 0; step < 20; ++step) {
      const std::vector<double> grad{normal(random), normal(random), normal(random)};
      whole.step(settings.lr, grad);
      // What a checkpoint keeps: parameters, states, settings and progress.
      Walk<Rule, float> resumed(settings, {0, 0, 0});
      resumed.hyper_block.progress = parts.hyper_block.progress;
      resumed.hyper_block.refresh();
      resumed.params = parts.params;
      resumed.states = parts.states;
      resumed.step(settings.lr, grad);
      parts = resumed;
    }
    EXPECT_EQ(whole.params, parts.params) << Rule::kName;
    EXPECT_EQ(whole.hyper_block.progress.steps, 20) << Rule::kName;
    static_assert(std::size(Rule::kProgressNames) == size_t{kProgressCount<Rule>} && Rule::kStates <= 3);
  });
}

}  // namespace
}  // namespace lorry::formula
