// Every rule in every execution: the same bits, over many steps and over odd shapes from a generator.

#include "tests/optim/rules.h"

#include <cmath>

#include "lorry/optim/custom.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

/// Sizes, layouts and gradients from a seed; the same for every execution.
class Model {
 public:
  Model(uint64_t seed, int tensors, DType dtype) : random_(seed) {
    for (int t = 0; t < tensors; ++t) {
      Dims sizes;
      for (int rank = number(0, 3); rank > 0; --rank)
        sizes.push_back(number(0, 20) == 0 ? 0 : number(1, t == 0 ? 40 : 9));
      Tensor x = random_tensor(random_, sizes, dtype);
      if (sizes.size() == 2 && number(0, 3) == 0) x = x.t().clone().t();                             // columns first
      if (sizes.size() == 2 && number(0, 4) == 0) x = cat({x, x}, 1).narrow(1, 0, sizes[1]);         // non-dense
      if (sizes.size() == 1 && sizes[0] > 1 && number(0, 2) == 0) x = x.narrow(0, 1, sizes[0] - 1);  // misaligned
      params_.emplace_back(fmt::format("p{}", t), parameter(x.detach()));
    }
  }
  const std::vector<NamedTensor>& params() const { return params_; }
  /// Gradients for a step; now and then one is missing, transposed, or was there before and is written in place.
  void give_gradients() {
    for (const auto& [name, param] : params_) {
      const Tensor grad =
          random_tensor(random_, param.sizes(), param.dtype(), std::ldexp(1.0, static_cast<int>(number(-8, 3))));
      const int64_t way = number(0, 19);
      if (way == 0)
        param.set_grad({});
      else if (way < 6 && param.grad().defined())
        param.grad().copy_(grad);
      else
        param.set_grad(way == 6 && param.dim() == 2 ? grad.t().clone().t() : grad);
    }
  }

 private:
  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  std::mt19937_64 random_;
  std::vector<NamedTensor> params_;
};

/// Steps of every execution from the same seed, compared with the fused one at the end.
template <class Rule>
void expect_the_same_bits(uint64_t seed, int tensors, DType dtype, Masters masters, int variant, int steps) {
  std::vector<std::string> expected;
  for (const Execution execution : {Execution::fused, Execution::compiled, Execution::foreach, Execution::loop}) {
    SCOPED_TRACE(fmt::format("{} by {}, seed {}, {} steps in {}, masters {}, variant {}", Rule::kName, name(execution),
                             seed, steps, dtype, name(masters), variant));
    Model model(seed, tensors, dtype);
    Any<Rule> optimizer(model.params(), settings_of<Rule>(variant), execution, {.masters = masters});
    for (int step = 0; step < steps; ++step) {
      model.give_gradients();
      if (step % 5 == 3)
        optimizer.step({.max_norm = 1 + step % 3 * 1e3, .skip_nonfinite = true, .zero_grad = step % 2 == 0});
      else if (step % 7 == 4)
        optimizer.step(tensor_of({step % 3 == 0 ? NAN : 1.0 / 3}, {}, kF64));
      else
        optimizer.step();
      if (step == steps / 2) optimizer.set_lr(0.003);
    }
    std::vector<std::string> got;
    for (const auto& [name, param] : model.params()) got.push_back(bits(param));
    for (const auto& [name, state] : optimizer.state_dict()) got.push_back(bits(state));
    if (execution == Execution::fused) expected = got;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(got[i] == expected[i]) << "parameter or state " << i << " of " << got.size();
  }
}

TEST(Rules, every_execution_gives_the_same_bits_over_1000_steps) {
  formula::Rules::each([]<class Rule>() { expect_the_same_bits<Rule>(1, 4, kF32, Masters::none, 0, 1000); });
}

TEST(Rules, every_execution_gives_the_same_bits_over_odd_shapes_and_dtypes) {
  uint64_t seed = 100;
  formula::Rules::each([&]<class Rule>() {
    for (int variant = 0; variant < kVariants; ++variant)
      for (const auto& [dtype, masters] : {std::pair{kF32, Masters::none},
                                           {kF64, Masters::none},
                                           {kF16, Masters::none},
                                           {kF16, Masters::f32},
                                           {kBF16, Masters::f32},
                                           {kBF16, Masters::split}})
        expect_the_same_bits<Rule>(++seed, 9, dtype, masters, variant, 9);
  });
}

/// A user's own: steps by the gradient of the step before the last, which wanders from one state to the other.
struct Delayed {
  static constexpr const char* kName = "delayed";
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[] = {"last", "before"};
  struct Settings {
    double lr = 0.5;
  };
  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};
  template <class V>
  struct Hyper {
    V lr;
    template <class To, class F>
    Hyper<To> map(const F& f) const {
      return {f(lr)};
    }
  };
  static Hyper<double> advance(Progress& p, const Settings& s) {
    p.steps += 1;
    return {s.lr};
  }
  static double first_state(int, const Settings&) { return 0; }
  template <class V, class H>
  void operator()(V& param, V grad, V* states, const H& h) const {
    param = param - h.lr * states[1];
    states[1] = states[0];
    states[0] = grad;
  }
};
using DelayedSgd = Custom<Delayed>;

TEST(Rules, a_users_rule_may_hand_one_state_on_to_another) {
  if (!default_device().is_cpu()) GTEST_SKIP() << "its kernels are for the CPU";
  for (const Execution execution : kExecutions) {
    const Tensor a = parameter({0, 0});
    DelayedSgd delayed(std::vector<NamedTensor>{{"a", a}}, Delayed::Settings(), execution);
    std::vector<double> course;
    for (const double g : {1.0, 2.0, 4.0, 8.0, 16.0}) {
      a.set_grad(tensor_of({g, -g}, {2}));
      delayed.step();
      course.push_back(values(a)[0]);
    }
    EXPECT_EQ(course, (std::vector<double>{0, 0, -0.5, -1.5, -3.5})) << name(execution);
    EXPECT_EQ(values(delayed.state_dict().at("a.before"))[1], -8) << name(execution);
  }
}

TEST(Rules, a_state_dict_continues_any_rule_to_the_bit) {
  formula::Rules::each([]<class Rule>() {
    for (const auto& [dtype, masters] :
         {std::pair{kF32, Masters::none}, {kBF16, Masters::f32}, {kBF16, Masters::split}}) {
      std::string expected;
      for (const bool breaks : {false, true}) {
        Model model(3, 6, dtype);
        auto optimizer = std::make_unique<Any<Rule>>(model.params(), settings_of<Rule>(1), Execution::fused,
                                                     Memory{.masters = masters});
        for (int step = 0; step < 12; ++step) {
          if (breaks && step == 6) {
            TensorMap state = optimizer->state_dict();
            for (auto& [name, x] : state) x = x.clone();
            optimizer = std::make_unique<Any<Rule>>(model.params(), settings_of<Rule>(1), Execution::fused,
                                                    Memory{.masters = masters});
            optimizer->load_state_dict(state);
          }
          model.give_gradients();
          optimizer->step();
        }
        std::string got;
        for (const auto& [name, param] : model.params()) got += bits(param);
        if (!breaks) expected = got;
        EXPECT_TRUE(got == expected) << fmt::format("{} in {}, masters {}", Rule::kName, dtype, name(masters));
      }
    }
  });
}

}  // namespace
}  // namespace lorry::optim::test
