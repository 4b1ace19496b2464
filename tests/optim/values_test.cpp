// Where the optimizers arrive, against PyTorch's (tests/support/rule_values.h) and against a plain loop in double that
// follows the papers, with pow.

#include <cmath>
#include <set>

#include "tests/optim/support.h"
#include "tests/support/dtypes.h"
#include "tests/support/rule_values.h"

namespace lorry::optim::test {
namespace {

using lorry::test::Json;

/// The largest differences from PyTorch's f64 on the way, relative to the largest size so far, of parameters and, in
/// the end, of states relative to the largest of them.
template <class Options>
std::array<double, 2> differences(const Json& test, const Json& steps, DType dtype) {
  Options options;
  const Json left = lorry::test::take_options(test["options"], options);
  EXPECT_TRUE(left.empty()) << Options::kName << " has no " << left;
  lorry::test::RuleNumbers numbers;
  const Tensor param = parameter(numbers.start(), dtype);
  OptimizerFor<Options> optimizer({{"w", param}}, options);
  std::vector<double> sizes(lorry::test::kRuleParameters);
  std::array<double, 2> worst{};
  const auto compare = [](double& most, double ours, double theirs, double size) {
    const double off = ours == theirs ? 0 : std::fabs(ours - theirs) / size;
    most = off <= most ? most : off;  // NaN is more
  };
  const int last = steps.back();
  for (int step = 0, snapshot = 0; step < last; ++step) {
    optimizer.set_lr(lorry::test::rule_lr(test, options.lr, step));
    param.set_grad(tensor_of(numbers.gradient(test["optimizer"]), {lorry::test::kRuleParameters}, dtype));
    optimizer.step();
    const std::vector<double> now = values(param);
    for (size_t i = 0; i < now.size(); ++i) sizes[i] = std::max(sizes[i], std::fabs(now[i]));
    if (step + 1 != steps[snapshot]) continue;
    for (size_t i = 0; i < now.size(); ++i) compare(worst[0], now[i], test["snapshots"][snapshot][i], sizes[i]);
    ++snapshot;
  }
  const TensorMap state = optimizer.state_dict();
  for (const auto& [name, theirs] : test["states"].items()) {
    const auto found = state.find("w." + name);
    EXPECT_TRUE(found != state.end()) << "no state called " << name;
    if (found == state.end()) continue;
    const std::vector<double> ours = values(found->second);
    double size = 0;
    for (const double x : ours) size = std::max(size, std::fabs(x));
    for (size_t i = 0; i < ours.size(); ++i) compare(worst[1], ours[i], theirs[i], size);
  }
  return worst;
}

TEST(Values, every_option_arrives_where_pytorch_does) {
  const Json data = lorry::test::rule_values();
  std::set<std::string> tested;
  for (const Json& test : data["cases"]) {
    std::string name = test["optimizer"];
    std::ranges::transform(name, name.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
    tested.insert(name);
    with_options(name, [&]<class Options>(const Options&) {
      const auto exact = differences<Options>(test, data["steps"], kF64),
                 rounded = differences<Options>(test, data["steps"], kF32);
      for (const int k : {0, 1}) {
        EXPECT_LT(exact[k], 1e-12) << name << " " << test["options"];
        // A hundred stored results, each half a unit off: steps of one direction and size are all rounded to the same
        // side.
        EXPECT_LT(rounded[k], 100 * 0x1p-24) << name << " " << test["options"];
      }
    });
  }
  for (const std::string& name : optimizer_names())
    with_options(name, [&](const auto& options) {
      EXPECT_TRUE(tested.contains(name) || lorry::test::kWithoutPyTorch.contains(options.rule()->info().name))
          << name << " has no values of PyTorch's, and its rule is not named in kWithoutPyTorch";
    });
}

TEST(Values, adamw_follows_the_papers_equations_in_double) {
  std::mt19937_64 random(21);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (int round = 0; round < 20; ++round) {
    const AdamWOptions o{uniform(random) * 0.1, uniform(random) * 0.99, 0.9 + uniform(random) * 0.0999, 1e-8,
                         uniform(random)};
    double p = uniform(random) + 0.5, m = 0, v = 0;
    const Tensor param = parameter({p}, kF64);
    AdamW optimizer({{"p", param}}, o);
    for (int t = 1; t <= 50; ++t) {
      const double g = uniform(random) - 0.5;
      param.set_grad(tensor_of({g}, {1}, kF64));
      optimizer.step();
      m = o.beta1 * m + (1 - o.beta1) * g;
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
      p = p - o.lr * o.weight_decay * p - o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
    EXPECT_NEAR(values(param)[0], p, 1e-11) << "round " << round;
  }
}

TEST(Values, half_parameters_take_the_f32_step_and_round_once) {
  for (const DType dtype : lorry::test::kNarrowDTypes) {
    const Tensor half = parameter({0.5, -1.25, 3.0}, dtype), wide = parameter({0.5, -1.25, 3.0});
    AdamW a({{"p", half}}, {.lr = 0.1}), b({{"p", wide}}, {.lr = 0.1});
    half.set_grad(tensor_of({0.25, -0.5, 2}, {3}, dtype));
    wide.set_grad(tensor_of({0.25, -0.5, 2}, {3}));
    a.step();
    b.step();
    EXPECT_EQ(values(half), values(wide.detach().to(dtype)));
    EXPECT_EQ(a.state_dict().at("p.exp_avg").dtype(), kF32);
  }
}

}  // namespace
}  // namespace lorry::optim::test
