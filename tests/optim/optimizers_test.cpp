// What is the same for every optimizer: names, options and their domains, masters, state dictionaries.

#include "lorry/optim/optimizers.h"

#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

/// Steps by the same gradients, whatever the optimizer.
void steps(Optimizer& optimizer, const Tensor& param, int from, int to) {
  for (int step = from; step < to; ++step) {
    std::mt19937_64 random(100 + step);
    param.set_grad(random_tensor(random, param.sizes(), param.dtype()));
    optimizer.step();
  }
}

TEST(Optimizers, are_known_by_name) {
  const std::vector<std::string> names = optimizer_names();
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  for (const std::string& name : names) {
    const Tensor param = parameter({1, -2});
    const auto optimizer = make_optimizer(name, {{"w", param}}, 0.25);
    EXPECT_EQ(optimizer->lr(), 0.25);
    steps(*optimizer, param, 0, 2);
    EXPECT_NE(values(param), (std::vector<double>{1, -2})) << name;
  }
  EXPECT_EQ(make_optimizer("lion", {{"w", parameter({1})}})->lr(), 1e-4);
  EXPECT_EQ(message<ValueError>([] { make_optimizer("adamv", {}); }),
            fmt::format("optimizer: unknown name; got 'adamv'; expected one of {}", fmt::join(names, ", ")));
  EXPECT_EQ(names.front(), "adamw");
  for (const char* name : {"adam", "rprop", "sgd", "lion"}) EXPECT_NE(std::ranges::find(names, name), names.end());
}

TEST(Optimizers, refuse_options_out_of_their_domain_by_name) {
  AllOptions::each([]<class Options>(Options options) {
    const auto refused = [&](double& field, double value) {
      const double before = field;
      field = value;
      const std::string text = message<ValueError>([&] { OptimizerFor<Options>({{"w", parameter({1})}}, options); });
      EXPECT_TRUE(text.starts_with(std::string(Options::kName) + ": ")) << Options::kName << " " << text;
      EXPECT_NE(text.find("out of range"), std::string::npos) << text;
      field = before;
    };
    for (const double bad : {-1.0, std::nan(""), static_cast<double>(INFINITY)}) {
      refused(options.lr, bad);
      if constexpr (requires { options.weight_decay; }) refused(options.weight_decay, bad);
      if constexpr (requires { options.eps; }) refused(options.eps, bad);
      if constexpr (requires { options.beta1; }) refused(options.beta1, bad), refused(options.beta2, bad);
      if constexpr (requires { options.momentum; }) refused(options.momentum, bad);
      if constexpr (requires { options.momentum_decay; }) refused(options.momentum_decay, bad);
      if constexpr (requires { options.lr_decay; })
        refused(options.lr_decay, bad), refused(options.initial_accumulator_value, bad);
      if constexpr (requires { options.rho; }) refused(options.rho, bad);
      if constexpr (requires { options.alpha; }) refused(options.alpha, bad);
      if constexpr (requires { options.lambd; }) refused(options.lambd, bad);
      if constexpr (requires { options.etaplus; })
        refused(options.etaplus, bad), refused(options.etaminus, bad), refused(options.step_size_min, bad),
            refused(options.step_size_max, bad);
    }
    if constexpr (requires { options.beta1; }) refused(options.beta1, 1), refused(options.beta2, 1);
    if constexpr (requires { options.rho; }) refused(options.rho, 1.5);
    if constexpr (requires { options.t0; }) refused(options.t0, NAN);
    if constexpr (requires { options.dampening; }) refused(options.dampening, INFINITY);
    if constexpr (requires { options.etaplus; })
      refused(options.etaplus, 1), refused(options.etaminus, 1), refused(options.step_size_min, 51);
  });
}

TEST(Optimizers, resume_to_the_bit_with_masters_of_either_kind) {
  for (const std::string& name : optimizer_names())
    for (const Masters masters : {Masters::none, Masters::f32, Masters::split}) {
      std::mt19937_64 random(3);
      const Tensor start = random_tensor(random, {5, 7}, kBF16), straight = parameter(start.clone());
      const auto one = make_optimizer(name, {{"w", straight}}, 1e-2, Execution::automatic, {.masters = masters});
      steps(*one, straight, 0, 4);
      TensorMap saved;
      for (const auto& [key, x] : one->state_dict()) saved[key] = x.clone();
      EXPECT_EQ(saved.contains("w.master"), masters == Masters::f32);
      EXPECT_EQ(saved.contains("w.remainder"), masters == Masters::split);
      const Tensor resumed = parameter(straight.detach().clone());
      const auto two = make_optimizer(name, {{"w", resumed}}, 1e-2, Execution::loop, {.masters = masters});
      two->load_state_dict(saved);
      steps(*one, straight, 4, 8);
      steps(*two, resumed, 4, 8);
      EXPECT_EQ(bits(resumed), bits(straight)) << name;
    }
}

TEST(Optimizers, split_is_for_bf16) {
  EXPECT_NE(
      message<DTypeError>([] {
        make_optimizer("radam", {{"w", parameter({1}, kF16)}}, {}, Execution::automatic, {.masters = Masters::split});
      }).find("cannot be split"),
      std::string::npos);
  make_optimizer("radam", {{"w", parameter({1}, kF32)}}, {}, Execution::automatic, {.masters = Masters::split});
}

TEST(Optimizers, take_groups_of_options) {
  const Tensor a = parameter({1}), b = parameter({1});
  Lion lion({{{{"a", a}}, {.lr = 0.5}}});
  lion.add_param_group({{{"b", b}}, {.lr = 0.25}});
  for (const Tensor& x : {a, b}) x.set_grad(tensor_of({3}, {1}));
  lion.step();
  EXPECT_EQ(values(a)[0], 0.5);
  EXPECT_EQ(values(b)[0], 0.75);
}

}  // namespace
}  // namespace lorry::optim::test
