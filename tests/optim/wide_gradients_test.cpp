// Gradients of another dtype than their parameter: how they add up, and that every execution steps by them as by
// gradients that were converted first.

#include "lorry/base/events.h"
#include "lorry/compile/compile.h"
#include "lorry/optim/clip.h"
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
    params.emplace_back("non_dense", parameter(random_tensor(random, {5, 8}, dtype).narrow(1, 1, 3)));
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

// ---- every dtype of gradients and parameters ------------------------------------------------------------------------

constexpr DType kDTypes[] = {kF16, kBF16, kF32, kF64};

/// The dtype in which parameters of one of the dtypes are stepped.
DType computed(DType param) { return param == kF64 ? kF64 : kF32; }

/// Hidden copies that f tells of.
template <class F>
int copies_of(const F& f) {
  static int copies;
  copies = 0;
  const events::Handler before =
      events::set_handler([](const events::Event& event) { copies += event.kind == events::Kind::hidden_copy; });
  f();
  events::set_handler(before);
  return copies;
}

/// Gives a model gradients of the dtypes in turn, and another one the same gradients converted to `by_hand`.
void give_gradients(Model& model, Model& other, std::span<const DType> dtypes, DType by_hand) {
  for (size_t i = 0; i < model.params.size(); ++i) {
    const Tensor &p = model.params[i].second, &q = other.params[i].second;
    const DType dtype = dtypes[i % dtypes.size()];
    const Tensor grad = random_tensor(model.random, p.sizes(), kF64, 0.1).to(dtype);  // f64 has bits that f32 has not
    p.set_grad(grad);
    q.set_grad(grad.to(by_hand).clone());
  }
}

/// Steps by gradients of these dtypes are steps by the same gradients in dtype `by_hand`, to the bit, and zero_grad
/// zeroes the gradients themselves.
template <class Rule>
void expect_steps_as_by_hand(DType param, std::span<const DType> dtypes, DType by_hand, const Memory& memory,
                             Execution execution) {
  Model model(13, param), other(13, param);
  Any<Rule> mixed(model.params, settings_of<Rule>(1), execution, memory),
      plain(other.params, settings_of<Rule>(1), execution, memory);
  for (int step = 0; step < 4; ++step) {
    give_gradients(model, other, dtypes, by_hand);
    const bool clips = step % 2 == 1;
    const StepOptions options = clips ? StepOptions{.max_norm = 0.5, .skip_nonfinite = true, .zero_grad = step == 3}
                                      : StepOptions{.zero_grad = step == 2};
    const Tensor norm = mixed.step(options), expected = plain.step(options);
    ASSERT_EQ(norm.defined(), clips);
    if (clips) {
      EXPECT_EQ(norm.item<double>(), expected.item<double>());
    }
    for (size_t i = 0; i < model.params.size(); ++i) {
      const Tensor &p = model.params[i].second, &q = other.params[i].second;
      ASSERT_EQ(bits(p), bits(q)) << model.params[i].first << " after step " << step;
      EXPECT_EQ(p.grad().dtype(), dtypes[i % dtypes.size()]);
      const std::vector<double> zero(values(p).size(), 0);
      EXPECT_EQ(values(p.grad()) == zero, options.zero_grad) << model.params[i].first << " after step " << step;
    }
    const TensorMap got = mixed.state_dict();
    for (const auto& [key, state] : plain.state_dict()) ASSERT_EQ(bits(got.at(key)), bits(state)) << key;
  }
}

TEST(GradientDTypes, of_every_pair_step_as_gradients_that_were_converted_first) {
  for (const DType param : kDTypes)
    for (const DType grad : kDTypes)
      for (const Execution execution : kExecutions) {
        SCOPED_TRACE(fmt::format("{} gradients of {} parameters, {}", grad, param, name(execution)));
        const DType by_hand = grad == param || (grad == kF32 && param != kF64) ? grad : computed(param);
        expect_steps_as_by_hand<formula::AdamW<true>>(param, {&grad, 1}, by_hand, {}, execution);
      }
}

TEST(GradientDTypes, may_differ_among_parameters_that_are_stepped_together) {
  constexpr DType kWide[] = {kF64, kF32}, kBoth[] = {kBF16, kF32};
  for (const DType param : kDTypes)
    for (const std::span<const DType> dtypes :
         {std::span<const DType>(kDTypes), std::span<const DType>(kWide), std::span<const DType>(kBoth)})
      for (const Execution execution : kExecutions) {
        SCOPED_TRACE(fmt::format("{} parameters, gradients of {} dtypes, {}", param, dtypes.size(), name(execution)));
        expect_steps_as_by_hand<formula::AdamW<false>>(param, dtypes, computed(param), {}, execution);
      }
  for (const Memory& memory : kMemories)
    for (const Execution execution : kExecutions) {
      SCOPED_TRACE(fmt::format("masters {}, {}", name(memory.masters), name(execution)));
      expect_steps_as_by_hand<formula::RMSprop<true, true>>(kBF16, kDTypes, kF32, memory, execution);
    }
}

TEST(GradientDTypes, may_change_from_step_to_step) {
  for (const DType param : {kBF16, kF32})
    for (const Execution execution : kExecutions) {
      Model model(17, param), other(17, param);
      AdamW mixed(model.params, {}, execution), plain(other.params, {}, execution);
      for (const DType dtype : {kF32, kF64, kF16, kF32, kF64}) {
        give_gradients(model, other, {&dtype, 1}, kF32);
        mixed.step({.max_norm = 0.5}), plain.step({.max_norm = 0.5});
        give_gradients(model, other, kDTypes, kF32);
        mixed.step(), plain.step();
      }
      for (size_t i = 0; i < model.params.size(); ++i)
        EXPECT_EQ(bits(model.params[i].second), bits(other.params[i].second)) << name(execution) << " " << i;
    }
}

TEST(GradientDTypes, that_kernels_take_are_not_copied) {
  const std::pair<DType, DType> direct[] = {{kF16, kF16},  {kF16, kF32}, {kBF16, kBF16},
                                            {kBF16, kF32}, {kF32, kF32}, {kF64, kF64}};
  for (const auto& [param, grad] : direct) {
    const Tensor p = parameter(ones({10}, {.dtype = param})), q = parameter(ones({3, 4}, {.dtype = param}));
    for (const Tensor& x : {p, q}) x.set_grad(ones(x.sizes(), {.dtype = grad}));
    AdamW adamw(numbered({p, q}));
    EXPECT_EQ(copies_of([&] { adamw.step({.max_norm = 1}); }), 0) << fmt::format("{} of {}", grad, param);
    EXPECT_EQ(adamw.memory_report().copies, 0);
  }
  // Of a family with mixed gradients only those are converted that have another dtype than the step takes.
  const Tensor p = parameter(ones({10}, {.dtype = kBF16})), q = parameter(ones({3, 4}, {.dtype = kBF16}));
  p.set_grad(ones({10}, {.dtype = kF32})), q.set_grad(ones({3, 4}, {.dtype = kBF16}));
  AdamW adamw(numbered({p, q}));
  EXPECT_EQ(copies_of([&] { adamw.step(); }), 1);
  const MemoryReport report = adamw.memory_report();
  EXPECT_EQ(report.gradients, 4 * 10 + 2 * 12);
  EXPECT_EQ(report.copies, 4 * 12);
}

TEST(GradientDTypes, of_f64_are_rounded_to_f32_for_f32_parameters) {
  const Tensor p = parameter({1, 1, 1});
  const std::vector<double> grads = {1 + 1e-12, 1e-60, 1e60};
  p.set_grad(tensor_of(grads, {3}, kF64));
  SGD sgd({{"p", p}}, {.lr = 1});
  sgd.step();
  EXPECT_EQ(values(p), (std::vector<double>{0, 1, -INFINITY}));
  // The norm is that of the rounded gradients.
  EXPECT_EQ(sgd.step({.max_norm = 1, .skip_nonfinite = true}).item<double>(), INFINITY);
  EXPECT_EQ(values(p.grad()), grads) << "the gradient itself stays";
}

TEST(GradientDTypes, of_all_kinds_are_clipped_by_their_common_norm) {
  std::mt19937_64 random(3);
  std::vector<Tensor> params, grads;
  double squares = 0;
  for (const DType param : kDTypes)
    for (const DType grad : kDTypes) {
      params.push_back(parameter(random_tensor(random, {50}, param)));
      params.back().set_grad(random_tensor(random, {50}, grad));
      for (const double x : values(params.back().grad())) squares += x * x;
    }
  const double expected = std::sqrt(squares);
  for (const Execution execution : kExecutions) {
    SGD sgd(numbered(params), {.lr = 0}, execution);
    EXPECT_NEAR(sgd.step({.max_norm = 1}).item<double>(), expected, 1e-7 * expected) << name(execution);
  }
  EXPECT_NEAR(clip_grad_norm_(params, 1).item<double>(), expected, 1e-12 * expected);
  SGD sgd(numbered(params), {.lr = 0});
  EXPECT_NEAR(sgd.step({.max_norm = 1}).item<double>(), 1, 1e-2) << "the gradients were clipped, each in its dtype";
}

TEST(GradientDTypes, are_those_that_were_set_and_backward_adds_to_them) {
  for (const DType param : kDTypes)
    for (const DType grad : kDTypes) {
      const Tensor p = parameter(full({4}, 3, {.dtype = param}));
      p.set_grad(ones({4}, {.dtype = grad}));
      p.mul(p).sum().backward();
      EXPECT_EQ(p.grad().dtype(), grad);
      EXPECT_EQ(values(p.grad()), std::vector<double>(4, 7)) << fmt::format("{} of {}", grad, param);
      p.mul(p).sum().backward({}, false, true);  // a sum that is recorded
      EXPECT_EQ(p.grad().dtype(), grad);
      EXPECT_EQ(values(p.grad()), std::vector<double>(4, 13));
      p.set_grad({});  // whose history holds p
    }
  const Tensor p = parameter({1, 2});
  EXPECT_EQ(message<DTypeError>([&] { p.set_grad(ones({2}, {.dtype = kI32})); }),
            "set_grad: the gradient is not floating; got gradient: [2] i32 cpu, tensor: [2] f32 cpu; expected one of "
            "f16, bf16, f32, f64");
}

TEST(GradientDTypes, step_alike_in_a_graph) {
  Model model(19, kBF16), other(19, kBF16);
  AdamW mixed(model.params, {}), plain(other.params, {});
  give_gradients(model, other, kDTypes, kF32);
  mixed.step(), plain.step();  // makes states
  const auto step = compile(
      [&](const Tensor& x) {
        mixed.step({.max_norm = 0.5});
        return x.add(1);
      },
      {.fullgraph = true});
  for (int call = 0; call < 4; ++call) {
    step(zeros({2}));
    plain.step({.max_norm = 0.5});
    for (size_t i = 0; i < model.params.size(); ++i)
      ASSERT_EQ(bits(model.params[i].second), bits(other.params[i].second)) << call << " " << i;
  }
}

}  // namespace
}  // namespace lorry::optim::test
