// Where the optimizers arrive, against PyTorch's (stored by tests/peers/make_optim_values.py) and against a plain loop in double that
// follows the papers, with pow.

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

using Json = nlohmann::json;
constexpr int kCount = 12;

/// The generator of make_optim_values.py: multiples of 2^-24 in [-0.5, 0.5).
class Numbers {
 public:
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return std::ldexp(static_cast<double>(state_ >> 40), -24) - 0.5;
  }

 private:
  uint64_t state_ = 1;
};

std::unique_ptr<Optimizer> make(const std::string& kind, const Json& o, const Tensor& param) {
  const std::vector<NamedTensor> params = numbered({param});
  const auto betas = o.value("betas", std::vector<double>{0.9, 0.999});
  if (kind == "SGD")
    return std::make_unique<SGD>(params, SGDOptions{o["lr"], o.value("momentum", 0.0), o.value("dampening", 0.0), o.value("weight_decay", 0.0),
                                                    o.value("nesterov", false), o.value("maximize", false)});
  if (kind == "Adam")
    return std::make_unique<Adam>(params, AdamOptions{o["lr"], betas[0], betas[1], o.value("eps", 1e-8), o.value("weight_decay", 0.0),
                                                      o.value("amsgrad", false), o.value("maximize", false)});
  return std::make_unique<AdamW>(params, AdamWOptions{o["lr"], betas[0], betas[1], o.value("eps", 1e-8), o.value("weight_decay", 1e-2),
                                                      o.value("amsgrad", false), o.value("maximize", false)});
}

/// The parameters after `steps` steps.
std::vector<double> arrive(const Json& test, DType dtype, int steps) {
  Numbers numbers;
  std::vector<double> start(kCount);
  for (double& x : start) x = numbers.next();
  const Tensor param = parameter(start, dtype);
  const auto optimizer = make(test["optimizer"], test["options"], param);
  const double lr = test["options"]["lr"];
  for (int step = 0; step < steps; ++step) {
    if (test["name"].get<std::string>().ends_with("lr-changes")) optimizer->set_lr(lr / (1 + step % 4));
    std::vector<double> grad(kCount);
    for (int i = 0; i < kCount; ++i) grad[i] = std::ldexp(numbers.next(), i - 6);
    param.set_grad(tensor_of(grad, {kCount}, dtype));
    optimizer->step();
  }
  return values(param);
}

/// The largest difference relative to the parameter's size (at least 2^-6, as small as they begin).
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (int i = 0; i < kCount; ++i) worst = std::max(worst, std::fabs(a[i] - b[i]) / std::max(std::fabs(b[i]), 0x1p-6));
  return worst;
}

TEST(Values, every_option_arrives_where_pytorch_does) {
  std::ifstream file(std::string(LORRY_TEST_DATA) + "/optim_values.json");
  const Json data = Json::parse(file);
  ASSERT_EQ(data["cases"].size(), 17u);
  for (const Json& test : data["cases"]) {
    const auto exact = test["f64"].get<std::vector<double>>(), rounded = test["f32"].get<std::vector<double>>();
    EXPECT_LT(difference(arrive(test, kF64, data["steps"]), exact), 1e-13) << test["name"];
    // In f32 PyTorch itself is up to 8e-6 away from its f64: it rounds the factor 1 - lr * weight_decay before it multiplies.
    const double ours = difference(arrive(test, kF32, data["steps"]), exact);
    EXPECT_LT(ours, 3e-6) << test["name"];
    EXPECT_LT(ours, difference(rounded, exact) + 1e-6) << test["name"];
  }
}

TEST(Values, adamw_follows_the_papers_equations_in_double) {
  std::mt19937_64 random(21);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (int round = 0; round < 20; ++round) {
    const AdamWOptions o{uniform(random) * 0.1, uniform(random) * 0.99, 0.9 + uniform(random) * 0.0999, 1e-8, uniform(random)};
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
  for (const DType dtype : {kF16, kBF16}) {
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
