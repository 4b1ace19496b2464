// What an optimizer keeps, as what and where: every choice gives the same bits in every execution, and goes through
// state dictionaries.

#include "lorry/optim/memory.h"

#include <cmath>
#include <map>

#include "lorry/autograd/grad_mode.h"
#include "lorry/formula/quantize.h"
#include "lorry/memory/memory.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

constexpr StateType kF = StateType::f32, kB = StateType::bf16, kQ = StateType::q8;

/// A dtype of parameters, and what is kept of them.
struct Choice {
  DType dtype;
  Memory memory;
  std::string name() const {
    return fmt::format("{} with masters {} and states {}", dtype, optim::name(memory.masters),
                       optim::name(memory.states));
  }
};

/// Every kind of parameter and master, with states of one type and of several.
std::vector<Choice> choices() {
  std::vector<Choice> all;
  for (const auto& [dtype, masters] : {std::pair{kF32, Masters::none},
                                       {kF16, Masters::none},
                                       {kF16, Masters::f32},
                                       {kBF16, Masters::none},
                                       {kBF16, Masters::f32},
                                       {kBF16, Masters::split},
                                       {kBF16, Masters::stochastic}})
    for (const StateTypes& states :
         {StateTypes(kF), StateTypes(kB), StateTypes(kQ), StateTypes(kB, kQ, kF), StateTypes(kQ, kF, kB)})
      all.push_back({dtype, {.masters = masters, .states = states, .seed = 7}});
  return all;
}

/// Odd tensors: a scalar, none, a block and one more, several blocks and a rest, columns first, misaligned, non-dense.
std::vector<NamedTensor> odd_params(DType dtype) {
  std::mt19937_64 random(11);
  const auto make = [&](const Dims& sizes) { return random_tensor(random, sizes, dtype); };
  std::vector<Tensor> tensors{make({}),
                              make({0}),
                              make({257}),
                              make({3, 413}),
                              make({90, 7}).t(),
                              make({302}).narrow(0, 1, 300),
                              make({20, 31}).narrow(1, 3, 17)};
  for (Tensor& x : tensors) x = parameter(x.detach());
  return numbered(tensors);
}

/// Gradients of the model, the same at every call; some are missing.
const std::vector<Tensor>& gradients(DType dtype, int step) {
  static std::map<std::pair<DType, int>, std::vector<Tensor>> made;
  std::vector<Tensor>& grads = made[{dtype, step}];
  if (grads.empty()) {
    std::mt19937_64 random(1000 + static_cast<unsigned>(step));
    for (const auto& [name, p] : odd_params(dtype)) {
      const Tensor grad = random_tensor(random, p.sizes(), dtype, std::ldexp(1.0, static_cast<int>(random() % 9) - 6));
      grads.push_back(random() % 16 == 0 ? Tensor() : grad);
    }
  }
  return grads;
}

void give_gradients(const std::vector<NamedTensor>& params, int step) {
  const std::vector<Tensor>& grads = gradients(params[0].second.dtype(), step);
  for (size_t i = 0; i < params.size(); ++i) params[i].second.set_grad(grads[i]);
}

/// Plain steps, clipped ones, and some that are left out.
void make_step(Optimizer& optimizer, int step) {
  if (step % 7 == 3)
    optimizer.step({.max_norm = 0.5 + step % 5, .skip_nonfinite = true});
  else if (step % 11 == 6)
    optimizer.step(tensor_of({step % 2 == 0 ? NAN : 0.25}, {}, kF64));
  else
    optimizer.step();
}

std::vector<std::string> all_bits(const std::vector<NamedTensor>& params, const Optimizer& optimizer) {
  std::vector<std::string> all;
  for (const auto& [name, p] : params) all.push_back(bits(p));
  // a live state counts no version of its steps
  for (const auto& [key, x] : optimizer.state_dict()) all.push_back(key + bits(x.clone()));
  return all;
}

TensorMap copied(const TensorMap& state) {
  TensorMap copy;
  for (const auto& [key, x] : state) copy[key] = x.clone();
  return copy;
}

// ---- the same bits --------------------------------------------------------------------------------------------------

template <class Rule>
void expect_one_course(const Choice& choice, int steps) {
  std::vector<std::string> expected;
  for (const Execution execution : kExecutions) {
    SCOPED_TRACE(fmt::format("{} by {}, {} steps of {}", Rule::kName, name(execution), steps, choice.name()));
    const std::vector<NamedTensor> params = odd_params(choice.dtype);
    Any<Rule> optimizer(params, settings_of<Rule>(1), execution, choice.memory);
    for (int step = 0; step < steps; ++step) {
      give_gradients(params, step);
      make_step(optimizer, step);
    }
    const std::vector<std::string> got = all_bits(params, optimizer);
    if (expected.empty()) expected = got;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(got[i] == expected[i]) << i << " of " << got.size();
  }
}

TEST(OptimMemory, every_rule_gives_the_same_bits_in_every_execution_over_100_steps) {
  const std::vector<Choice> all = choices();
  size_t next = 0;
  formula::Rules::each([&]<class Rule>() {
    // of 35 choices, each with a rule or two
    for (int k = 0; k < 3; ++k) expect_one_course<Rule>(all[next++ % all.size()], 100);
    for (const Choice& choice : all) expect_one_course<Rule>(choice, 4);
  });
}

TEST(OptimMemory, adamw_gives_the_same_bits_whatever_it_keeps_over_100_steps) {
  for (const Choice& choice : choices()) expect_one_course<formula::AdamW<true>>(choice, 100);
}

TEST(OptimMemory, a_saved_state_continues_to_the_bit_in_another_execution) {
  formula::Rules::each([]<class Rule>() {
    for (const Choice& choice : choices()) {
      SCOPED_TRACE(fmt::format("{} of {}", Rule::kName, choice.name()));
      const std::vector<NamedTensor> params = odd_params(choice.dtype);
      Any<Rule> straight(params, settings_of<Rule>(1), Execution::fused, choice.memory);
      const auto go_on = [&](const std::vector<NamedTensor>& from, Optimizer& optimizer) {
        for (int step = 4; step < 7; ++step) {
          give_gradients(from, step);
          optimizer.step();
        }
      };
      for (int step = 0; step < 4; ++step) {
        give_gradients(params, step);
        straight.step();
      }
      const TensorMap saved = copied(straight.state_dict());
      const std::vector<NamedTensor> resumed = odd_params(choice.dtype);
      {
        const NoGrad quiet;
        for (size_t i = 0; i < params.size(); ++i) resumed[i].second.detach().copy_(params[i].second.detach());
      }
      Any<Rule> again(resumed, settings_of<Rule>(1), Execution::foreach, choice.memory);
      again.load_state_dict(saved);
      go_on(params, straight), go_on(resumed, again);
      ASSERT_TRUE(all_bits(params, straight) == all_bits(resumed, again));
    }
  });
}

TEST(OptimMemory, a_parameter_in_another_order_takes_its_states_along) {
  for (const StateTypes& states : {StateTypes(kF), StateTypes(kB), StateTypes(kQ)}) {
    std::vector<std::string> expected;
    for (const Execution execution : kExecutions) {
      std::mt19937_64 random(2);
      const Tensor p = parameter(random_tensor(random, {30, 41}, kF32));
      AdamW adamw({{"p", p}}, {.memory = {.states = states}}, execution);
      for (int step = 0; step < 4; ++step) {
        p.set_grad(random_tensor(random, {30, 41}, kF32));
        adamw.step();
        if (step != 1) continue;
        const Tensor before = adamw.state_dict().at("p.exp_avg").clone();
        const NoGrad quiet;
        p.set_data(p.detach().t().contiguous().t());
        p.set_grad({});
        p.set_grad(zeros({30, 41}));
        adamw.step(tensor_of({NAN}, {}, kF64));  // moves nothing, but lays the states out
        if (states != StateTypes(kQ)) {
          EXPECT_EQ(bits(adamw.state_dict().at("p.exp_avg").clone()), bits(before));
        }
      }
      const std::vector<std::string> got = all_bits({{"p", p}}, adamw);
      if (expected.empty()) expected = got;
      EXPECT_TRUE(got == expected) << name(execution) << " with states " << name(states);
    }
  }
}

TEST(OptimMemory, groups_may_keep_different_things) {
  for (const Execution execution : kExecutions) {
    const std::vector<NamedTensor> together = odd_params(kBF16), apart = odd_params(kBF16);
    const AdamWOptions eight{.memory = {.masters = Masters::split, .states = kQ}},
        plain{.memory = {.masters = Masters::f32}};
    const auto part = [](const std::vector<NamedTensor>& params, size_t begin, size_t end) {
      return std::vector(params.begin() + begin, params.begin() + end);
    };
    AdamW both({{part(together, 0, 4), eight}, {part(together, 4, 7), plain}}, execution);
    AdamW first(part(apart, 0, 4), eight, execution), second(part(apart, 4, 7), plain, execution);
    for (int step = 0; step < 5; ++step) {
      for (const auto* params : {&together, &apart}) give_gradients(*params, step);
      both.step(), first.step(), second.step();
    }
    for (size_t i = 0; i < together.size(); ++i)
      EXPECT_EQ(bits(together[i].second), bits(apart[i].second)) << name(execution) << " " << i;
    EXPECT_TRUE(both.state_dict().contains("2.remainder") && both.state_dict().contains("4.master"));
  }
}

// ---- stochastic rounding --------------------------------------------------------------------------------------------

TEST(OptimMemory, small_steps_add_up_in_the_mean_without_masters) {
  const Tensor p = parameter(ones({1 << 14}, {.dtype = kBF16}));
  SGD sgd({{"p", p}}, {.lr = 1.0 / 4096, .memory = {.masters = Masters::stochastic}});
  EXPECT_TRUE(sgd.state_dict().size() == 1) << "nothing but steps";
  for (int step = 0; step < 64; ++step) {
    p.set_grad(ones({1 << 14}, {.dtype = kBF16}));
    sgd.step();
  }
  // Each is 1 - 64/4096 with a deviation of at most sqrt(64 / 4) of its last bit, 1/256.
  EXPECT_NEAR(p.detach().to(kF64).mean().item<double>(), 1 - 64.0 / 4096, 5 * 4.0 / 256 / std::sqrt(1 << 14));
}

TEST(OptimMemory, seeds_and_numbers_of_parameters_name_the_random_bits) {
  const auto stepped = [](uint64_t seed) {
    const Tensor a = parameter(ones({512}, {.dtype = kBF16})), b = parameter(ones({512}, {.dtype = kBF16}));
    AdamW adamw({{"a", a}, {"b", b}},
                {.lr = 1e-3, .memory = {.masters = Masters::stochastic, .states = kB, .seed = seed}});
    for (int step = 0; step < 3; ++step) {
      for (const Tensor& x : {a, b}) x.set_grad(full({512}, 0.3, {.dtype = kBF16}));
      adamw.step();
    }
    return std::pair(bits(a), bits(b));
  };
  EXPECT_EQ(stepped(1), stepped(1));
  EXPECT_NE(stepped(1).first, stepped(2).first);
  EXPECT_NE(stepped(1).first, stepped(1).second);
}

// ---- training -------------------------------------------------------------------------------------------------------

/// The loss at the end of fitting noisy values of a function by two layers.
double trained(DType dtype, const Memory& memory) {
  std::mt19937_64 random(4);
  const Tensor x = random_tensor(random, {1024, 16}, kF32), truth = random_tensor(random, {16, 1}, kF32, 0.5);
  const Tensor y = matmul(x, truth).tanh().add(random_tensor(random, {1024, 1}, kF32, 0.2));
  const Tensor first = parameter(random_tensor(random, {16, 12}, dtype, 0.25)),
               second = parameter(random_tensor(random, {12, 1}, dtype, 0.15));
  AdamW adamw({{"first", first}, {"second", second}}, {.lr = 3e-3, .memory = memory});
  constexpr int kSteps = 600;
  double last = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps * 3 / 4) adamw.set_lr(3e-4);
    const Tensor loss = mse_loss(matmul(matmul(x, first.to(kF32)).tanh(), second.to(kF32)), y);
    adamw.zero_grad();
    loss.backward();
    adamw.step();
    if (step >= kSteps - 20) last += loss.item<double>() / 20;
  }
  return last;
}

TEST(OptimMemory, training_ends_within_a_hundredth_of_the_loss_with_f32_states) {
  const double expected = trained(kF32, {});
  EXPECT_LT(expected, 0.04) << "the noise in the values";
  EXPECT_NEAR(trained(kF32, {.states = kB}), expected, 0.01 * expected);
  EXPECT_NEAR(trained(kF32, {.states = kQ}), expected, 0.01 * expected);
  EXPECT_NEAR(trained(kF32, {.states = {kF, kQ}}), expected, 0.01 * expected);
}

TEST(OptimMemory, training_16_bit_parameters_ends_near_it_with_and_without_masters) {
  const double expected = trained(kBF16, {.masters = Masters::f32});
  EXPECT_NEAR(trained(kBF16, {.masters = Masters::split, .states = kQ}), expected, 0.01 * expected);
  EXPECT_NEAR(trained(kBF16, {.masters = Masters::stochastic, .states = kQ}), expected, 0.01 * expected);
}

// ---- state dictionaries ---------------------------------------------------------------------------------------------

TEST(OptimMemory, state_dicts_hold_what_is_stored) {
  const Tensor p = parameter(tensor_of(std::vector<double>(600, 1), {20, 30})),
               t = parameter(ones({30, 20}).t().detach());
  AdamW adamw({{"p", p}, {"t", t}}, {.memory = {.states = {kB, kQ}}});
  for (const Tensor& x : {p, t}) x.set_grad(full({20, 30}, 0.5));
  adamw.step();
  const TensorMap state = adamw.state_dict();
  EXPECT_EQ(state.at("p.exp_avg").dtype(), kBF16);
  EXPECT_EQ(state.at("p.exp_avg_sq").dtype(), kU8);
  EXPECT_EQ(state.at("p.exp_avg_sq").sizes(), (Dims{20, 30}));
  EXPECT_EQ(state.at("p.exp_avg_sq_scale").dtype(), kF32);
  EXPECT_EQ(state.at("p.exp_avg_sq_scale").sizes(), (Dims{3}));
  EXPECT_EQ(state.at("p.exp_avg_sq").to_vector<uint8_t>()[0], 255) << "the largest of its block";
  EXPECT_FLOAT_EQ(static_cast<float>(state.at("p.exp_avg_sq_scale").to_vector<float>()[0]), 0.001f * 0.25f);
  EXPECT_FALSE(state.contains("p.exp_avg_sq_strides"));
  EXPECT_EQ(state.at("t.exp_avg_sq").strides(), (Dims{1, 20}));
  EXPECT_EQ(state.at("t.exp_avg_sq_strides").to_vector<int64_t>(), (std::vector<int64_t>{1, 20}));
  // They are the state itself.
  state.at("p.exp_avg_sq_scale").fill_(4);
  EXPECT_EQ(adamw.state_dict().at("p.exp_avg_sq_scale").to_vector<float>()[2], 4);
}

TEST(OptimMemory, a_new_state_in_8_bits_is_what_the_rule_begins_with) {
  const Tensor p = parameter(ones({300})), q = parameter(ones({300}));
  Adagrad exact({{"p", p}}, {.initial_accumulator_value = 0.1}),
      eight({{"p", q}}, {.initial_accumulator_value = 0.1, .memory = {.states = kQ}});
  for (const Tensor& x : {p, q}) x.set_grad(zeros({300}));
  exact.step(), eight.step();
  const TensorMap state = eight.state_dict();
  EXPECT_EQ(state.at("p.sum").to_vector<uint8_t>(), std::vector<uint8_t>(300, 255));
  EXPECT_EQ(state.at("p.sum_scale").to_vector<float>(), std::vector<float>(2, 0.1f));
}

TEST(OptimMemory, states_of_another_storage_are_refused_and_nothing_changes) {
  const auto make = [](const Memory& memory, const Tensor& p) {
    auto adamw = std::make_unique<AdamW>(std::vector<NamedTensor>{{"p", p}}, AdamWOptions{.memory = memory});
    p.set_grad(full(p.sizes(), 0.5, p.options()));
    adamw->step();
    return adamw;
  };
  const auto p = [](DType dtype = kF32) { return parameter(ones({20, 30}, {.dtype = dtype})); };
  const TensorMap wide = copied(make({}, p())->state_dict()), eight = copied(make({.states = kQ}, p())->state_dict());
  const Tensor own = p();
  const auto adamw = make({.states = kQ}, own);
  const auto before = all_bits({{"p", own}}, *adamw);
  const auto with = [&](const std::string& key, const Tensor& x) {
    TensorMap state = copied(eight);
    if (x.defined())
      state[key] = x;
    else
      state.erase(key);
    return state;
  };
  EXPECT_EQ(message<DTypeError>([&] { adamw->load_state_dict(wide); }),
            "adamw: state 'p.exp_avg' has another dtype; got [20, 30] f32 cpu; expected u8; make this optimizer with "
            "the memory.states of the one that saved it");
  EXPECT_THROW(make({}, p())->load_state_dict(eight), DTypeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg", zeros({20, 30}, {.dtype = kI8}))), DTypeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg", zeros({30, 20}, {.dtype = kU8}))), ShapeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg", zeros({612}, {.dtype = kU8}))), ShapeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg", {})), FormatError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_scale", {})), FormatError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_scale", zeros({2}))), ShapeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_scale", zeros({3, 1}))), ShapeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_scale", zeros({3}, {.dtype = kF64}))), DTypeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_strides", tensor_of({1, 20}, {2}, kI64))), FormatError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_strides", tensor_of({1}, {1}, kI64))), ShapeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_strides", tensor_of({30, 1}, {2}, kF64))), DTypeError);
  EXPECT_THROW(adamw->load_state_dict(with("p.exp_avg_zero", zeros({3}))), FormatError);
  EXPECT_TRUE(all_bits({{"p", own}}, *adamw) == before);
  adamw->load_state_dict(eight);
  EXPECT_TRUE(all_bits({{"p", own}}, *adamw) == before) << "both made the same step";

  const Tensor columns = parameter(ones({30, 20}).t().detach());
  const auto other = make({.states = kQ}, columns);
  EXPECT_NE(message<FormatError>([&] { other->load_state_dict(eight); }).find("another order in memory"),
            std::string::npos);
  EXPECT_THROW(adamw->load_state_dict(copied(other->state_dict())), FormatError);

  const TensorMap masters = copied(make({.masters = Masters::f32}, p(kBF16))->state_dict());
  EXPECT_NE(message<FormatError>([&] {
              make({.masters = Masters::split}, p(kBF16))->load_state_dict(masters);
            }).find("masters and states of the one that saved it"),
            std::string::npos);
  EXPECT_NE(message<FormatError>([&] {
              make({.masters = Masters::stochastic}, p(kBF16))->load_state_dict(masters);
            }).find("'p.master' is unexpected"),
            std::string::npos);
}

// ---- what is refused, and where things lie --------------------------------------------------------------------------

TEST(OptimMemory, is_refused_where_it_does_not_fit_a_parameter) {
  const Tensor half = parameter({1}, kF16), wide = parameter({1}, kF64);
  const auto why = [](const Tensor& p, const Memory& memory) {
    return message<DTypeError>([&] { AdamW({{"p", p}}, {.memory = memory}); });
  };
  EXPECT_EQ(why(half, {.masters = Masters::stochastic}),
            "adamw: parameter 'p' cannot be rounded stochastically; got [1] f16 cpu; expected bf16, or f32 and f64, "
            "which need it not; or take Masters::f32");
  EXPECT_EQ(why(wide, {.states = {kF, kQ}}),
            "adamw: states of parameter 'p' cannot be q8; got [1] f64 cpu; expected f32, f16 or bf16, or states of "
            "StateType::f32");
  SGD({{"p", wide}}, {.memory = {.masters = Masters::stochastic, .states = kQ}});  // has no state
  const Tensor late = parameter({1}, kBF16);
  AdamW adamw({{"p", late}}, {.memory = {.masters = Masters::stochastic}});
  late.set_data(late.detach().to(kF16));
  late.set_grad(tensor_of({1}, {1}, kF16));
  EXPECT_THROW(adamw.step(), DTypeError);
}

TEST(OptimMemory, states_lie_where_they_were_placed) {
  const bool cpu = default_device().is_cpu();
  for (const Placement placement : {Placement::pinned, Placement::managed}) {
    std::vector<std::string> expected;
    for (const Execution execution : kExecutions)
      for (const StateTypes& states : {StateTypes(kF), StateTypes(kB, kQ)})
        for (const Placement where : {Placement::device, placement}) {
          const std::vector<NamedTensor> params = odd_params(kBF16);
          AdamW adamw(params, {.memory = {.masters = Masters::f32, .states = states, .placement = where}}, execution);
          for (int step = 0; step < 5; ++step) {
            give_gradients(params, step);
            make_step(adamw, step);
          }
          for (const auto& [key, x] : adamw.state_dict()) {
            if ((x.dim() == 0 && x.dtype() == kF64) || key.ends_with("_strides")) continue;
            EXPECT_EQ(x.is_pinned(), !cpu && where == Placement::pinned) << key;
            EXPECT_EQ(x.is_managed(), !cpu && where == Placement::managed) << key;
          }
          const std::vector<std::string> got = all_bits(params, adamw);
          if (where == Placement::device)
            expected = got;
          else
            EXPECT_TRUE(got == expected) << name(placement) << " by " << name(execution);
        }
  }
}

TEST(OptimMemory, an_eager_step_that_runs_out_of_memory_parts_no_parameter_from_its_states) {
  const Device device = default_device();
  constexpr int64_t kCount = 1 << 18;
  for (const Execution execution : {Execution::loop, Execution::foreach}) {
    int failed = 0, made = 0;
    for (int64_t room = 0; room < 26 && made < 2; ++room) {
      const Tensor p = parameter(ones({kCount}));
      AdamW adamw({{"p", p}}, {.memory = {.states = {kF, kQ}}}, execution);
      p.set_grad(full({kCount}, 0.5));
      adamw.step();
      const Tensor factor = tensor_of({0.5}, {}, kF64);
      const auto before = all_bits({{"p", p}}, adamw);
      memory::empty_cache(device);
      memory::set_limit(device, memory::stats(device).reserved + room * kCount * 4 + (1 << 16));
      bool stepped = true;
      try {
        adamw.step(factor);
      } catch (const OutOfMemory&) {
        stepped = false;
      }
      memory::set_limit(device, 0);
      (stepped ? made : failed) += 1;
      EXPECT_EQ(all_bits({{"p", p}}, adamw) == before, !stepped) << name(execution) << " " << room;
    }
    EXPECT_GT(failed, 0) << name(execution);
    EXPECT_GT(made, 0) << name(execution);
  }
}

}  // namespace
}  // namespace lorry::optim::test
