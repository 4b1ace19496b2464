#pragma once

// Where PyTorch's optimizers arrive (tests/data/rule_values.json, stored by tests/peers/make_rule_values.py), and the
// steps that lead there.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace lorry::test {

using Json = nlohmann::json;
/// Rules that PyTorch does not have, by the kName of each form of theirs: other tests compare them with the plain loops
/// of their papers.
inline const std::set<std::string> kWithoutPyTorch = {
    "lion",
};
inline constexpr int kRuleParameters = 11;  ///< parameters of a case

inline Json rule_values() {
  std::ifstream file(std::string(LORRY_TEST_DATA) + "/rule_values.json");
  return Json::parse(file);
}

/// The generator of make_rule_values.py: multiples of 2^-24 in [-0.5, 0.5).
class RuleNumbers {
 public:
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return std::ldexp(static_cast<double>(state_ >> 40), -24) - 0.5;
  }
  std::vector<double> start() {
    std::vector<double> start(kRuleParameters);
    for (double& x : start) x = 4 * next();
    return start;
  }
  std::vector<double> gradient(const std::string& optimizer) {
    const bool small = optimizer == "SGD" || optimizer == "ASGD";
    std::vector<double> grad(kRuleParameters);
    for (int i = 0; i < kRuleParameters; ++i) {
      const double x = next();
      grad[i] = std::ldexp(x, (i - 5) * (small ? 1 : 2) + static_cast<int>(std::floor(next() * 8)));
    }
    return grad;
  }

 private:
  uint64_t state_ = 1;
};

/// The learning rate of a step, counted from 0.
inline double rule_lr(const Json& test, double lr, int step) {
  return test["options"].contains("lr_changes") ? lr / (1 + step % 4) : lr;
}

/// Takes PyTorch's options over into a struct that has them. Those that it has not are left over and returned.
template <class Options>
Json take_options(Json o, Options& s) {
  const auto take = [&](const char* name, auto& to) {
    if (o.contains(name)) to = o[name].get<std::remove_reference_t<decltype(to)>>(), o.erase(name);
  };
  const auto take_two = [&](const char* name, double& a, double& b) {
    if (o.contains(name)) a = o[name][0], b = o[name][1], o.erase(name);
  };
  o.erase("lr_changes");
  take("lr", s.lr), take("maximize", s.maximize);
  if constexpr (requires { s.amsgrad; }) take("amsgrad", s.amsgrad);
  if constexpr (requires { s.centered; }) take("centered", s.centered);
  if constexpr (requires { s.beta1; }) take_two("betas", s.beta1, s.beta2);
  if constexpr (requires { s.eps; }) take("eps", s.eps);
  if constexpr (requires { s.weight_decay; }) take("weight_decay", s.weight_decay);
  if constexpr (requires { s.decoupled; }) take("decoupled_weight_decay", s.decoupled);
  if constexpr (requires { s.decoupled_weight_decay; }) take("decoupled_weight_decay", s.decoupled_weight_decay);
  if constexpr (requires { s.momentum; }) take("momentum", s.momentum);
  if constexpr (requires { s.nesterov; }) take("dampening", s.dampening), take("nesterov", s.nesterov);
  if constexpr (requires { s.momentum_decay; }) take("momentum_decay", s.momentum_decay);
  if constexpr (requires { s.lr_decay; })
    take("lr_decay", s.lr_decay), take("initial_accumulator_value", s.initial_accumulator_value);
  if constexpr (requires { s.rho; }) take("rho", s.rho);
  if constexpr (requires { s.alpha; }) take("alpha", s.alpha);
  if constexpr (requires { s.lambd; }) take("lambd", s.lambd), take("t0", s.t0);
  if constexpr (requires { s.etaplus; })
    take_two("etas", s.etaminus, s.etaplus), take_two("step_sizes", s.step_size_min, s.step_size_max);
  return o;
}

}  // namespace lorry::test
