// A rule of one's own, whole or as an update alone, in every execution.

#include "lorry/optim/custom.h"

#include "lorry/compile/compile.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"
#include "tests/support/dtypes.h"

namespace lorry::optim::test {
namespace {

std::vector<NamedTensor> few_params(DType dtype) {
  std::mt19937_64 random(5);
  std::vector<NamedTensor> params;
  for (const Dims& sizes : {Dims{}, Dims{0}, Dims{3, 5}, Dims{17}, Dims{33, 31}})
    params.emplace_back(fmt::format("p{}", params.size()), parameter(random_tensor(random, sizes, dtype)));
  return params;
}

/// What `make(params, execution)` leaves after a few steps, all executions of it alike.
template <class Make>
std::string expect_same_bits(DType dtype, const Make& make) {
  std::string first;
  for (const Execution execution : kExecutions) {
    // this file is compiled without code for GPUs
    if (execution == Execution::fused && !default_device().is_cpu()) continue;
    const auto params = few_params(dtype);
    const auto optimizer = make(params, execution);
    for (int step = 0; step < 6; ++step) {
      std::mt19937_64 random(100 + step);
      for (const auto& [name, param] : params) param.set_grad(random_tensor(random, param.sizes(), dtype));
      if (step == 3) {
        optimizer->step(tensor_of({NAN}, {}, kF64));
        optimizer->set_lr(0.05);
      }
      optimizer->step(tensor_of({0.7}, {}, kF64));
    }
    std::string after;
    for (const auto& [name, param] : params) after += bits(param);
    for (const auto& [name, state] : optimizer->state_dict()) after += name + bits(state);
    if (first.empty()) first = after;
    EXPECT_TRUE(after == first) << fmt::format("{} in {}", name(execution), dtype);
  }
  return first;
}

/// Every rule as if it were not Lorry's own.
template <class Rule>
struct Foreign : Rule {};

TEST(Custom, gives_the_bits_of_lorrys_own_kernels) {
  formula::Rules::each([]<class Rule>() {
    for (const DType dtype : {kF32, kF64, kBF16})
      for (const Masters masters : {Masters::none, Masters::split}) {
        typename Rule::Settings settings;
        settings.lr = 0.01;
        const auto own = expect_same_bits(dtype, [&](const auto& params, Execution e) {
          return std::make_unique<Custom<Foreign<Rule>>>(params, settings, e, Memory{.masters = masters});
        });
        const auto known = expect_same_bits(dtype, [&](const auto& params, Execution e) {
          return std::make_unique<Custom<Rule>>(params, settings, e, Memory{.masters = masters});
        });
        EXPECT_TRUE(own == known) << fmt::format("{} in {}", Rule::kName, dtype);
      }
  });
}

TEST(Custom, an_update_alone_is_a_rule) {
  const auto momentum = rule<1>(
      [](auto& param, auto grad, auto* states, const auto& h) {
        states[0] = h[0] * states[0] + grad;
        param = param - h.lr * states[0];
      },
      0.01, {0.9});
  for (const DType dtype : lorry::test::kFloatingDTypes) {
    const auto own = expect_same_bits(dtype, [&](const auto& params, Execution e) {
      return std::make_unique<Custom<typename decltype(momentum)::Rule>>(params, momentum, e);
    });
    EXPECT_FALSE(own.empty());
  }
  // SGD's own bits.
  const auto ours = few_params(kF32), theirs = few_params(kF32);
  Custom custom(ours, momentum);
  SGD sgd(theirs, {.lr = 0.01, .momentum = 0.9});
  for (int step = 0; step < 5; ++step) {
    for (const auto& params : {ours, theirs})
      for (const auto& [name, param] : params) param.set_grad(param.detach().mul(0.5));
    custom.step();
    sgd.step();
  }
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(bits(ours[i].second), bits(theirs[i].second));
  EXPECT_TRUE(custom.state_dict().contains("p2.state0"));
}

/// Constants that meet each other, states that change places, and a parameter that becomes a number.
struct Odd {
  static constexpr const char* kName = "odd";
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    using namespace formula;
    const V third = V(1) / V(3), small = V(0.1) * V(3);
    const V sign = select(grad > V(0), V(1), select(grad < V(0), V(-1), V(0)));
    const V last = states[0];
    states[0] = grad;
    states[1] = last;
    states[2] = select(V(1) > V(2), V(3), -sqrt(V(2)) + abs(V(-1)));
    param = param - h.lr * (sign * third + small * last / h.steps);
    const auto never = V(2) < V(1);
    param = select((param > V(2)) | never, V(2), param);
  }
};

TEST(Custom, constants_may_meet_and_states_change_places) {
  for (const DType dtype : {kF32, kF64, kBF16})
    expect_same_bits(dtype, [](const auto& params, Execution e) {
      const auto odd = rule<3>(Odd(), 0.1);
      return std::make_unique<Custom<typename decltype(odd)::Rule>>(params, odd, e);
    });
  const auto reset = rule<0>([]<class V>(V& param, V, V*, const auto&) { param = V(0.1); });
  for (const Execution execution : kExecutions) {
    if (execution == Execution::fused && !default_device().is_cpu()) continue;
    const Tensor a = parameter({1, 2});
    Custom optimizer({{"a", a}}, reset, execution);
    a.set_grad(tensor_of({1, 1}, {2}));
    optimizer.step();
    EXPECT_EQ(values(a), (std::vector<double>{0.1f, 0.1f}));
  }
}

// ---- old values that are read after the new ones are known ----------------------------------------------------------

template <class Rule>
void expect_same_bits_however_it_is_stored(const Rule& own) {
  for (const DType dtype : {kF32, kBF16})
    for (const Masters masters : {Masters::none, Masters::stochastic})
      for (const StateType state : {StateType::f32, StateType::bf16, StateType::q8}) {
        SCOPED_TRACE(fmt::format("states {}, masters {}", name(state), name(masters)));
        expect_same_bits(dtype, [&](const auto& params, Execution e) {
          return std::make_unique<Custom<typename Rule::Rule>>(params, own, e,
                                                               Memory{.masters = masters, .states = state, .seed = 3});
        });
      }
}

TEST(Custom, may_read_a_state_after_it_is_replaced) {
  expect_same_bits_however_it_is_stored(rule<1>(
      []<class V>(V& param, V grad, V* states, const auto& h) {
        const V old = states[0];
        states[0] = grad * h[0];
        param = param - h.lr * old;
      },
      0.1, {0.5}));
}

TEST(Custom, may_read_the_parameter_after_it_is_replaced) {
  expect_same_bits_however_it_is_stored(rule<1>(
      []<class V>(V& param, V grad, V* states, const auto& h) {
        const V old = param;
        param = param - h.lr * grad;
        states[0] = states[0] + h[0] * (old - states[0]);
      },
      0.1, {0.5}));
}

TEST(Custom, may_pass_old_values_on_as_they_are) {
  expect_same_bits_however_it_is_stored(rule<3>(
      []<class V>(V& param, V grad, V* states, const auto& h) {
        const V old = states[0];
        states[0] = states[1];
        states[1] = old;
        states[2] = param;
        param = param - h.lr * grad * h[0];
      },
      0.1, {0.5}));
  expect_same_bits_however_it_is_stored(rule<1>(
      []<class V>(V& param, V grad, V* states, const auto&) {
        const V old = states[0];
        states[0] = param + grad;
        param = old;
      },
      0.1));
}

TEST(Custom, steps_in_a_graph) {
  const auto momentum = rule<1>(
      [](auto& param, auto grad, auto* states, const auto& h) {
        states[0] = h[0] * states[0] + grad;
        param = param - h.lr * states[0];
      },
      0.25, {0.5});
  const auto params = few_params(kF32), same = few_params(kF32);
  Custom optimizer(params, momentum), plain(same, momentum);
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].second.set_grad(params[i].second.detach().mul(0.5));
    same[i].second.set_grad(params[i].second.grad().clone());
  }
  optimizer.step(), plain.step();  // makes states
  const auto step = compile(
      [&](const Tensor& x) {
        optimizer.step();
        return x.add(1);
      },
      {.fullgraph = true});
  for (int call = 0; call < 4; ++call) {
    step(zeros({2}));
    plain.step();
    for (size_t i = 0; i < params.size(); ++i) ASSERT_EQ(bits(params[i].second), bits(same[i].second)) << call;
  }
}

TEST(Custom, names_itself) {
  const auto odd = rule<3>(Odd(), -1);
  EXPECT_EQ(message<ValueError>([&] {
              Custom({{"a", parameter({1})}}, odd);
            }),
            "odd: lr is out of range; got -1; expected a finite number >= 0");
}

TEST(Custom, without_code_for_a_gpu_is_compiled_there_and_refuses_fused_steps) {
  const auto plain = rule<0>([](auto& param, auto grad, auto*, const auto& h) { param = param - h.lr * grad; }, 0.5);
  const Device device = default_device();
  Custom optimizer({{"a", parameter({1})}}, plain);
  EXPECT_EQ(optimizer.execution(), device.is_cpu() ? Execution::fused : Execution::compiled);
  if (device.is_cpu()) return;
  EXPECT_EQ(message<ValueError>([&] {
              Custom({{"a", parameter({1})}}, plain, Execution::fused);
            }),
            "rule: execution 'fused' has no code for cpu; compile what includes lorry/optim/custom.h with nvcc, or "
            "take compiled, foreach or loop");
}

}  // namespace
}  // namespace lorry::optim::test
