// Optimizers as a user writes them.
#include <gtest/gtest.h>

#include "lorry/lorry.h"
#include "tests/support/message.h"

namespace lorry::optim {
namespace {

TEST(Users, give_parameters_without_names) {
  AllOptions::each([]<class Options>(const Options& options) {
    const nn::Linear net(2, 1);
    OptimizerFor<Options> optimizer(net.parameters(), options);
    net(ones({3, 2})).sum().backward();
    optimizer.step();
    for (const auto& [name, state] : optimizer.state_dict()) EXPECT_TRUE(name[0] == '0' || name[0] == '1') << name;
    EXPECT_EQ(optimizer.parameters().size(), 2u) << Options::kName;
  });
  const nn::Linear net(2, 1);
  Adam adam(net.parameters());
  EXPECT_EQ(adam.lr(), 1e-3);
  Custom custom(net.parameters(), rule<0>([](auto& x, auto g, auto*, const auto& h) { x -= h.lr * g; }, 0.5));
  EXPECT_EQ(custom.lr(), 0.5);
}

TEST(Users, give_a_group_of_an_own_rule_other_numbers) {
  const auto momentum = [](double lr, double keep) {
    return rule<1>(
        [](auto& x, auto g, auto* states, const auto& h) {
          states[0] = h[0] * states[0] + g;
          x -= h.lr * states[0];
        },
        lr, {keep});
  };
  const Tensor a = zeros({2}).requires_grad_(), b = zeros({2}).requires_grad_();
  Custom optimizer({{"a", a}}, momentum(0.5, 0));
  optimizer.add_param_group({{{"b", b}}, momentum(0.25, 0.5)});
  for (int step = 0; step < 2; ++step) {
    for (const Tensor& x : {a, b}) x.set_grad(ones({2}));
    optimizer.step();
  }
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{-1, -1}));
  EXPECT_EQ(b.to_vector<float>(), (std::vector<float>{-0.625, -0.625}));
}

TEST(Users, are_told_of_a_number_that_a_rule_does_not_have) {
  const auto update = [](auto& x, auto g, auto*, const auto& h) { x -= h[3] * g; };
  EXPECT_EQ(test::message<IndexError>([&] { rule<1>(update, 0.1, {0.9}); }),
            "rule: the update asks for h[3]; got 1 numbers; expected 0 to 0");
  EXPECT_EQ(test::message<IndexError>([&] { rule<0>(update); }),
            "rule: the update asks for h[3]; got no numbers; give them after the rate");
}

TEST(Users, are_told_of_a_state_that_a_rule_does_not_have) {
  const std::string none = "rule: the update uses a state that it does not have; got a rule of ";
  const auto writes = [](auto& x, auto g, auto* states, const auto& h) { states[1] = g, x -= h.lr * g; };
  const auto reads = [](auto& x, auto g, auto* states, const auto& h) { x -= h.lr * (g + states[2]); };
  const auto first = [](auto& x, auto g, auto* states, const auto& h) { x -= h.lr * (states[0] += g); };
  EXPECT_EQ(test::message<IndexError>([&] { rule<1>(writes); }).find(none + "1 state;"), 0u);
  EXPECT_EQ(test::message<IndexError>([&] { rule<2>(reads); }).find(none + "2 states;"), 0u);
  EXPECT_EQ(test::message<IndexError>([&] { rule<0>(first); }).find(none + "0 states;"), 0u);
  rule<2>(writes), rule<3>(reads), rule<1>(first);
}

TEST(Users, are_told_of_an_optimizer_over_nothing) {
  struct Forgetful : nn::Module {};
  const std::string message = test::message<ValueError>([] { Adam(Forgetful().parameters()); });
  EXPECT_NE(message.find("adam: there are no parameters to step"), std::string::npos) << message;
  EXPECT_THROW(SGD(Forgetful().named_parameters()), ValueError);
  Adam later{std::vector<Group<AdamOptions>>()};
  EXPECT_THROW(later.step(), ValueError);
  EXPECT_THROW(later.step({.max_norm = 1}), ValueError);
  later.add_param_group({numbered({ones({1}).requires_grad_()}), {}});
  later.step();
}

struct Mixed {
  template <class V, class H>
  void operator()(V& param, V grad, V* states, const H& h) const {
    states[0] *= 0.9;
    states[0] += 0.1 * grad;
    V change = 2 * states[0] - grad / 3;
    change /= 1.5 + abs(grad);
    param -= h.lr * select(grad > 0.5, change, 0.1);
  }
};

/// The same with every number converted by hand.
struct ByHand {
  template <class V, class H>
  void operator()(V& param, V grad, V* states, const H& h) const {
    states[0] = states[0] * V(0.9);
    states[0] = states[0] + V(0.1) * grad;
    V change = V(2) * states[0] - grad / V(3);
    change = change / (V(1.5) + abs(grad));
    param = param - h.lr * select(grad > V(0.5), change, V(0.1));
  }
};

template <class Update>
std::vector<Tensor> stepped(Execution execution, DType dtype) {
  manual_seed(3);
  const Tensor x = randn({1000}, {.device = kCPU}).to(dtype).requires_grad_();
  Custom optimizer({x}, rule<1>(Update(), 0.3), execution);
  for (int step = 0; step < 3; ++step) {
    x.set_grad(randn({1000}, {.device = kCPU}).to(dtype));
    optimizer.step();
  }
  return {x.detach(), optimizer.state_dict().at("0.state0")};
}

TEST(Users, mix_numbers_and_values_in_rules_without_changing_a_bit) {
  for (const DType dtype : {kF32, kF64, kBF16}) {
    const auto expected = stepped<ByHand>(Execution::loop, dtype);
    for (const Execution execution : {Execution::loop, Execution::foreach, Execution::fused, Execution::compiled}) {
      const auto got = stepped<Mixed>(execution, dtype);
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i].equal(expected[i])) << dtype << " " << name(execution);
    }
  }
}

TEST(Users, read_a_rule_in_single_precision_as_plain_c_would_compute_it) {
  const Tensor x = tensor({1.0f, -2.0f}).requires_grad_();
  Custom optimizer({x}, rule<0>([](auto& p, auto g, auto*, const auto& h) { p -= 0.1 * g * h.lr; }, 0.7));
  x.set_grad(tensor({0.3f, 0.9f}));
  optimizer.step();
  const float lr = 0.7f, tenth = 0.1f;
  for (int i = 0; i < 2; ++i) {
    const float start = i == 0 ? 1.0f : -2.0f, g = i == 0 ? 0.3f : 0.9f;
    const float scaled = tenth * g, change = scaled * lr, expected = start - change;
    EXPECT_EQ(x.detach().to_vector<float>()[static_cast<size_t>(i)], expected);
  }
}

}  // namespace
}  // namespace lorry::optim
