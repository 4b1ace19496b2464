// f32 gradients of 16-bit parameters: how they add up, and that every execution steps by them alike.

#include "tests/optim/rules.h"
#include "tests/optim/support.h"
#include "tests/support/dtypes.h"

namespace lorry::optim::test {
namespace {

TEST(WideGradients, of_many_batches_add_up_in_f32) {
  for (const DType dtype : lorry::test::kNarrowDTypes) {
    constexpr int kBatches = 200, kCount = 300;
    std::mt19937_64 random(5);
    const Tensor p = parameter(random_tensor(random, {kCount}, dtype)), narrow = parameter(p.detach().clone());
    p.set_grad(zeros({kCount}));
    std::vector<double> expected(kCount);
    for (int i = 0; i < kBatches; ++i) {
      const Tensor x = random_tensor(random, {kCount}, dtype).abs();
      p.mul(x).sum().backward();
      narrow.mul(x).sum().backward();
      const std::vector<double> own = values(x);
      for (int j = 0; j < kCount; ++j) expected[j] += own[j];
    }
    EXPECT_EQ(p.grad().dtype(), kF32);
    const std::vector<double> got = values(p.grad()), rounded = values(narrow.grad());
    double worst = 0, worst_narrow = 0;
    for (int j = 0; j < kCount; ++j) {
      worst = std::max(worst, std::abs(got[j] / expected[j] - 1));
      worst_narrow = std::max(worst_narrow, std::abs(rounded[j] / expected[j] - 1));
    }
    EXPECT_LT(worst, 1e-5) << lorry::name(dtype);
    EXPECT_GT(worst_narrow, 1e-3) << "sums in 16 bits are as good: the test shows nothing";
  }
}

struct Model {
  Model(uint64_t seed, DType dtype) : random(seed) {
    for (const Dims& sizes : {Dims{3, 5}, Dims{1000}, Dims{}, Dims{257}})
      params.emplace_back(fmt::format("p{}", params.size()), parameter(random_tensor(random, sizes, dtype)));
    params.emplace_back("turned", parameter(random_tensor(random, {40, 30}, dtype).t()));
    params.emplace_back("gappy", parameter(random_tensor(random, {5, 8}, dtype).narrow(1, 1, 3)));
  }
  std::string step(Optimizer& optimizer, bool clips) {
    clips ? (void)optimizer.step({.max_norm = 0.5, .skip_nonfinite = true, .zero_grad = true}) : optimizer.step();
    std::string all;
    for (const auto& [name, p] : params) all += bits(p) + (clips ? bits(p.grad()) : "");
    for (const auto& [name, x] : optimizer.state_dict()) all += bits(x);
    return all;
  }
  std::mt19937_64 random;
  std::vector<NamedTensor> params;
};

const Memory kMemories[] = {{},
                            {.masters = Masters::f32},
                            {.masters = Masters::split},
                            {.masters = Masters::stochastic, .states = {StateType::bf16, StateType::q8}, .seed = 3}};

TEST(WideGradients, step_every_execution_alike) {
  formula::Rules::each([]<class Rule>() {
    for (const Memory& memory : kMemories)
      for (const bool clips : {false, true}) {
        std::string expected;
        for (const Execution execution : kExecutions) {
          Model model(7, kBF16);
          Any<Rule> optimizer(model.params, settings_of<Rule>(1), execution, memory);
          std::string got;
          for (int step = 0; step < 3; ++step) {
            for (const auto& [name, p] : model.params) p.set_grad(random_tensor(model.random, p.sizes(), kF32));
            got += model.step(optimizer, clips);
          }
          if (expected.empty()) expected = got;
          EXPECT_TRUE(got == expected) << Rule::kName << " by " << name(execution) << ", masters "
                                       << name(memory.masters) << (clips ? ", clipped" : "");
        }
      }
  });
}

TEST(WideGradients, that_fit_16_bits_step_like_those_of_16_bits_and_may_take_turns_with_them) {
  for (const Execution execution : kExecutions)
    for (const DType dtype : lorry::test::kNarrowDTypes)
      for (const bool clips : {false, true}) {
        Model narrow(9, dtype), wide(9, dtype);
        AdamW one(narrow.params, {}, execution), other(wide.params, {}, execution);
        for (int step = 0; step < 4; ++step) {
          for (size_t i = 0; i < narrow.params.size(); ++i) {
            const Tensor grad = random_tensor(narrow.random, narrow.params[i].second.sizes(), dtype);
            narrow.params[i].second.set_grad(grad);
            wide.params[i].second.set_grad(step == 2 ? grad.clone() : grad.to(kF32));
          }
          one.step({.max_norm = clips ? 0.5 : 1e9});
          other.step({.max_norm = clips ? 0.5 : 1e9});
        }
        for (size_t i = 0; i < narrow.params.size(); ++i)
          EXPECT_TRUE(bits(narrow.params[i].second) == bits(wide.params[i].second)) << name(execution) << " " << i;
      }
}

TEST(WideGradients, are_of_all_parameters_that_are_stepped_together_or_of_none) {
  const Tensor a = parameter(zeros({2}, {.dtype = kBF16})), b = parameter(zeros({3}, {.dtype = kBF16})),
               c = parameter(zeros({2}));
  SGD sgd({{"a", a}, {"b", b}, {"c", c}});
  a.set_grad(ones({2}));
  b.set_grad(ones({3}, {.dtype = kBF16}));
  c.set_grad(ones({2}));
  EXPECT_EQ(message<DTypeError>([&] { sgd.step(); }),
            "sgd: the gradient of 'b' has another dtype than that of a parameter that is stepped with it; got bf16; "
            "expected f32 for all");
  EXPECT_EQ(values(c)[0], 0) << "nothing is stepped";
  b.set_grad(ones({3}));
  EXPECT_NO_THROW(sgd.step());
  EXPECT_THROW(c.set_grad(ones({2}, {.dtype = kBF16})), DTypeError);
  EXPECT_THROW(a.set_grad(ones({2}, {.dtype = kF64})), DTypeError);
  EXPECT_THROW(a.set_grad(ones({2}, {.dtype = kF16})), DTypeError);
}

}  // namespace
}  // namespace lorry::optim::test
