// Optimizer steps at the door: one call a list of parameters, the same in every execution, made again to the bit; and a
// whole training step with listeners of all kinds.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <stdexcept>

#include "lorry/device/device.h"
#include "lorry/device/launches.h"
#include "lorry/lorry.h"
#include "lorry/memory/memory.h"
#include "lorry/optim/custom.h"
#include "lorry/optim/run_row.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"
#include "tests/support/announced_calls.h"

namespace lorry::optim::test {
namespace {

using lorry::test::Heard;
using lorry::test::heard_of;
using lorry::test::run_again;

std::vector<NamedTensor> parameters_with_gradients(DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<NamedTensor> params;
  for (const Dims& sizes : {Dims{5, 7}, Dims{300}, Dims{}}) {
    const Tensor x = parameter(random_tensor(random, sizes, dtype));
    x.set_grad(random_tensor(random, sizes, dtype));
    params.emplace_back("p" + std::to_string(params.size()), x);
  }
  return params;
}

std::vector<Tensor> again_by_optim(const door::CallView& call) { return optim::run(call); }

/// An output's bits; of hyper blocks, the last output of bytes, those of the progress in them: between a block's flags
/// and what follows lie bytes that nobody writes.
std::string bits_of_output(const Heard& step, size_t i, const Tensor& x) {
  const bool later = std::any_of(step.outputs.begin() + static_cast<std::ptrdiff_t>(i) + 1, step.outputs.end(),
                                 [](const Tensor& other) { return other.dtype() == kU8; });
  if (x.dtype() != kU8 || later) return bits(x);
  const auto rule = static_cast<int>(std::get<int64_t>(step.attributes[1]));
  const auto count = static_cast<int>(std::get<int64_t>(step.attributes[5]));
  const auto blocks = detail::rule_of(rule).make_blocks(x.device(), step.outputs[0].dtype() == kF64);
  blocks->use(x, count);
  std::string all;
  for (const double number : blocks->progress()) all += fmt::format("{:a} ", number);
  return all;
}

// States in pinned memory may be read when the device is done with them.
constexpr door::Listener kWaiting{.bit = kUserMode,
                                  .before =
                                      [](const door::CallView& call, void*& note) {
                                        device::synchronize(default_device());
                                        lorry::test::before_call(call, note);
                                      },
                                  .after =
                                      [](const door::CallView& call, void* note) {
                                        device::synchronize(default_device());
                                        lorry::test::after_call(call, note);
                                      }};

/// The step is one call; made again from what was announced it writes the same bits.
template <class F>
void expect_one_step(const F& step) {
  lorry::test::g_heard.clear();
  {
    const door::ListenerScope listening(kWaiting);
    step();
  }
  std::vector<Heard> calls = std::move(lorry::test::g_heard);
  std::erase_if(calls, [](const Heard& h) { return h.op != Op::optimizer_step; });
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_TRUE(calls[0].done);
  const std::vector<Tensor> again = run_again(calls[0], again_by_optim);
  ASSERT_EQ(again.size(), calls[0].outputs.size());
  for (size_t i = 0; i < again.size(); ++i)
    EXPECT_EQ(bits_of_output(calls[0], i, again[i]), bits_of_output(calls[0], i, calls[0].outputs[i]))
        << "output " << i;
}

TEST(AnnouncedSteps, of_every_rule_are_run_again_from_every_execution) {
  formula::Rules::each([]<class Rule>() {
    for (const Execution execution : kExecutions)
      for (int variant = 0; variant < kVariants; ++variant)
        for (const DType dtype : {kF32, kF64, kBF16}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", Rule::kName, name(execution), variant, dtype));
          Any<Rule> optimizer(parameters_with_gradients(dtype, 1), settings_of<Rule>(variant), execution);
          optimizer.step();  // states that are not their first
          expect_one_step([&] { optimizer.step(); });
        }
  });
}

TEST(AnnouncedSteps, have_their_options_and_memory) {
  using Rule = formula::AdamW<false>;
  const Memory choices[] = {{.masters = Masters::f32},
                            {.masters = Masters::split},
                            {.masters = Masters::stochastic, .seed = 7},
                            {.states = StateType::q8},
                            {.states = StateType::bf16, .seed = 11},
                            {.placement = Placement::pinned},
                            {.placement = Placement::managed},
                            {.masters = Masters::split, .states = StateType::q8, .placement = Placement::pinned},
                            {.masters = Masters::stochastic,
                             .states = {StateType::bf16, StateType::q8},
                             .placement = Placement::pinned,
                             .seed = 13}};
  for (const Memory& memory : choices)
    for (const Execution execution : kExecutions) {
      SCOPED_TRACE(fmt::format("{}, masters {}, states {}, {}", name(execution), name(memory.masters),
                               name(memory.states), name(memory.placement)));
      Any<Rule> optimizer(parameters_with_gradients(kBF16, 1), settings_of<Rule>(1), execution, memory);
      optimizer.step();
      expect_one_step([&] { optimizer.step(); });
      expect_one_step([&] { optimizer.step({.max_norm = 0.5, .skip_nonfinite = true, .zero_grad = true}); });
    }
}

TEST(AnnouncedSteps, tell_of_the_norm_that_they_clip_by) {
  const auto first = parameters_with_gradients(kF32, 1), second = parameters_with_gradients(kBF16, 2);
  Any<formula::AdamW<false>> plain(first, {}, Execution::fused), heard(second, {}, Execution::fused);
  for (auto* optimizer : {&plain, &heard}) {
    Tensor norm;
    const std::vector<Heard> calls =
        heard_of([&] { norm = optimizer->step({.max_norm = 0.5, .skip_nonfinite = true}); });
    std::vector<Op> ops;
    for (const Heard& h : calls) ops.push_back(h.op);
    ASSERT_GE(ops.size(), 2u);  // after the states that a first step makes, and copies of what is not dense
    const std::vector<Op> last(ops.end() - 2, ops.end());
    EXPECT_EQ(last, (std::vector{Op::clip_factor, Op::optimizer_step}));
    const Tensor alone = optimizer->step({.max_norm = 0.5, .skip_nonfinite = true});
    EXPECT_EQ(norm.item<double>(), alone.item<double>()) << "nobody listens";
  }
}

TEST(AnnouncedSteps, read_settings_in_tensors_that_are_their_inputs) {
  formula::Rules::each([]<class Rule>() {
    for (const Execution execution : kExecutions) {
      SCOPED_TRACE(fmt::format("{} {}", Rule::kName, name(execution)));
      Any<Rule> optimizer(parameters_with_gradients(kF32, 1), settings_of<Rule>(1), execution);
      std::vector<Tensor> tensors;
      for (const std::string& name : optimizer.settings()) {
        tensors.push_back(tensor_of({optimizer.get(0, name)}, {}, kF64));
        optimizer.set(name, tensors.back());
      }
      optimizer.step();
      for (const Tensor& x : tensors) x.mul_(0.875);  // in every domain but that of etaplus
      if (std::string_view(Rule::kName) == "rprop") tensors[2].fill_(1.5);
      expect_one_step([&] { optimizer.step(); });
      const std::vector<Heard> calls = heard_of([&] { optimizer.step(); });
      const auto step = std::ranges::find(calls, Op::optimizer_step, &Heard::op);
      ASSERT_NE(step, calls.end());
      ASSERT_GE(step->tensors.size(), tensors.size());
      for (size_t k = 0; k < tensors.size(); ++k)
        EXPECT_EQ(bits(*(step->tensors.end() - static_cast<std::ptrdiff_t>(tensors.size() - k))), bits(tensors[k]));
    }
  });
}

TEST(AnnouncedSteps, may_have_f32_gradients_of_16_bit_parameters) {
  for (const Execution execution : kExecutions) {
    const auto params = parameters_with_gradients(kBF16, 1);
    for (const auto& [name, p] : params) p.set_grad(p.grad().to(kF32));
    Any<formula::AdamW<false>> optimizer(params, {}, execution, {.masters = Masters::split});
    optimizer.step();
    expect_one_step([&] { optimizer.step({.max_norm = 0.5, .zero_grad = true}); });
  }
}

TEST(AnnouncedSteps, have_gradients_that_were_converted) {
  for (const Execution execution : kExecutions) {
    const auto params = parameters_with_gradients(kBF16, 1);
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor& p = params[i].second;
      p.set_grad(p.grad().to(std::array{kF16, kF64, kF32}[i]));
    }
    Any<formula::AdamW<false>> optimizer(params, {}, execution);
    optimizer.step();
    expect_one_step([&] { optimizer.step({.max_norm = 0.5, .zero_grad = true}); });
    for (const auto& [name, p] : params) EXPECT_EQ(p.grad().abs().sum().item<double>(), 0) << name;
  }
}

/// A rule that Lorry does not have.
struct Half {
  static constexpr const char* kName = "half";
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    states[0] = 0.5 * states[0] + h[0] * grad;
    param = param - h.lr * states[0];
  }
};

TEST(AnnouncedSteps, by_a_users_rule_are_run_again) {
  const auto half = rule<1>(Half(), 0.1, {0.25});
  for (const Execution execution : kExecutions) {
    if (execution == Execution::fused && !default_device().is_cpu()) continue;  // this file has no code for GPUs
    for (const DType dtype : {kF32, kF64, kBF16}) {
      SCOPED_TRACE(fmt::format("{} {}", name(execution), dtype));
      Custom optimizer(parameters_with_gradients(dtype, 1), half, execution);
      optimizer.step();
      expect_one_step([&] { optimizer.step(); });
      optimizer.set_lr(0);
      expect_one_step([&] { optimizer.step({.max_norm = 0.5, .zero_grad = true}); });
    }
  }
}

TEST(AnnouncedSteps, refuse_what_is_no_step) {
  const auto params = parameters_with_gradients(kF32, 1);
  Any<formula::AdamW<false>> optimizer(params, {}, Execution::fused);
  std::vector<Heard> calls = heard_of([&] { optimizer.step(); });
  std::erase_if(calls, [](const Heard& h) { return h.op != Op::optimizer_step; });
  ASSERT_EQ(calls.size(), 1u);
  const auto refused = [&](const auto& change, const char* why) {
    Heard wrong = calls[0];
    change(wrong);
    const std::string said = message<ValueError>([&] { run_again(wrong, again_by_optim); });
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  refused([](Heard& h) { h.attributes.pop_back(); }, "number of attributes");
  refused([](Heard& h) { h.attributes[2] = true; }, "another kind");
  refused([](Heard& h) { h.attributes[2] = int64_t{7}; }, "number of inputs");
  refused([](Heard& h) { h.attributes[2] = int64_t{-1}; }, "number of parameters");
  refused([](Heard& h) { h.attributes[1] = int64_t{-1}; }, "no rule has this number");
  refused([](Heard& h) { h.attributes[1] = int64_t{1'000'000}; }, "no rule has this number");
  refused([](Heard& h) { h.attributes[3] = int64_t{9}; }, "no such master");
  refused([](Heard& h) { h.attributes[4] = std::vector<int64_t>{9, 9, 9, 9, 9, 9}; }, "no such block");
  refused([](Heard& h) { h.attributes[5] = int64_t{1} << 20; }, "hyper blocks of another kind");
  refused([](Heard& h) { h.tensors[0] = ones({3}); }, "differ in layout, dtype or device");
  refused([](Heard& h) { h.tensors[3] = ones({3}); }, "does not fit");
  refused(
      [](Heard& h) {
        for (size_t i = 3; i < 6; ++i) h.tensors[i] = zeros_like(h.tensors[i], kI32);
      },
      "no state or master has this dtype");
  refused(
      [](Heard& h) {
        h.attributes[3] = int64_t{1};
        const std::vector<Tensor> params(h.tensors.begin(), h.tensors.begin() + 3);
        h.tensors.insert(h.tensors.begin() + 9, params.begin(), params.end());
      },
      "no such master");
  refused([](Heard& h) { h.tensors.back() = ones({3}); }, "the factor");
  refused([](Heard& h) { h.attributes[8] = std::vector<int64_t>{0, 0}; }, "number of inputs");
  const auto with_setting = [](Heard& h, int64_t setting, const Tensor& x) {
    h.attributes[8] = std::vector<int64_t>{0, setting};
    h.tensors.push_back(x);
  };
  refused([&](Heard& h) { with_setting(h, 99, ones({})); }, "no such setting");
  refused([&](Heard& h) { with_setting(h, 0, ones({3})); }, "the tensor of a setting");
}

// ---- listeners that throw -------------------------------------------------------------------------------------------

struct Refusal {
  Op op = Op::optimizer_step;
  bool after = false;
  std::vector<int> at = {};  ///< which calls of the operator throw
  int heard = 0;
};
Refusal g_refusal;

void refuse_call(const door::CallView& call, bool after) {
  if (call.op != g_refusal.op || after != g_refusal.after) return;
  const int number = g_refusal.heard++;
  if (std::ranges::find(g_refusal.at, number) != g_refusal.at.end())
    throw std::runtime_error(fmt::format("call {}", number));
}
constexpr door::Listener kRefusing{.bit = kUserMode,
                                   .before = [](const door::CallView& call, void*&) { refuse_call(call, false); },
                                   .after = [](const door::CallView& call, void*) { refuse_call(call, true); }};

/// What f throws to its caller while some calls throw; empty: nothing.
template <class F>
std::string error_of(const Refusal& refusal, const F& f) {
  g_refusal = refusal;
  const door::ListenerScope listening(kRefusing);
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

/// Three families, each with a non-dense parameter and, but for the last, with gradients that are converted.
struct Families {
  static constexpr DType kParams[] = {kF32, kBF16, kF64}, kGrads[] = {kF64, kF16, kF64};
  static constexpr size_t kEach = 3;

  Families() : random(23) {
    for (const DType dtype : kParams)
      for (const Tensor& x : {random_tensor(random, {300}, dtype), random_tensor(random, {5, 8}, dtype).narrow(1, 1, 3),
                              random_tensor(random, {4, 6}, dtype).t()})
        params.emplace_back(fmt::format("p{}", params.size()), parameter(x));
  }
  void give_gradients() {
    for (size_t i = 0; i < params.size(); ++i)
      params[i].second.set_grad(random_tensor(random, params[i].second.sizes(), kGrads[i / kEach]));
  }
  /// Takes gradients away from a family; it is not stepped then.
  void hide(int family) {
    for (size_t i = 0; i < kEach; ++i) params[static_cast<size_t>(family) * kEach + i].second.set_grad({});
  }
  std::mt19937_64 random;
  std::vector<NamedTensor> params;
};

/// Parameters and gradients, but for the gradients of a family, and what the optimizer holds.
std::string all_of(const Families& model, const Optimizer& optimizer, int without_gradients) {
  std::string all;
  for (size_t i = 0; i < model.params.size(); ++i) {
    all += bits(model.params[i].second);
    if (static_cast<int>(i / Families::kEach) != without_gradients) all += bits(model.params[i].second.grad());
  }
  for (const auto& [key, x] : optimizer.state_dict()) all += key + bits(x);
  return all;
}

TEST(RefusedSteps, leave_their_family_unstepped_and_step_the_others) {
  for (const Execution execution : kExecutions)
    for (int refused = 0; refused < 3; ++refused) {
      SCOPED_TRACE(fmt::format("{}, family {}", name(execution), refused));
      Families heard, plain;
      AdamW one(heard.params, {}, execution), other(plain.params, {}, execution);
      for (Families* model : {&heard, &plain}) model->give_gradients();
      one.step(), other.step();
      for (Families* model : {&heard, &plain}) model->give_gradients();
      const Tensor grad = heard.params[static_cast<size_t>(refused) * Families::kEach].second.grad();
      const std::string before = bits(grad);
      EXPECT_EQ(error_of({.at = {refused}}, [&] { one.step({.zero_grad = true}); }), fmt::format("call {}", refused));
      EXPECT_EQ(bits(grad), before);
      plain.hide(refused);
      other.step({.zero_grad = true});
      EXPECT_TRUE(all_of(heard, one, refused) == all_of(plain, other, refused));
      for (Families* model : {&heard, &plain}) model->give_gradients();
      one.step(), other.step();
      EXPECT_TRUE(all_of(heard, one, -1) == all_of(plain, other, -1)) << "the next step";
    }
}

TEST(RefusedSteps, that_are_refused_afterwards_were_made_and_the_first_error_is_thrown) {
  for (const Execution execution : kExecutions)
    for (const std::vector<int>& at : {std::vector<int>{0}, {1}, {2}, {1, 2}, {0, 1, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {} errors from {} on", name(execution), at.size(), at[0]));
      Families heard, plain;
      AdamW one(heard.params, {}, execution), other(plain.params, {}, execution);
      for (int step = 0; step < 2; ++step) {
        for (Families* model : {&heard, &plain}) model->give_gradients();
        EXPECT_EQ(error_of({.after = true, .at = at}, [&] { one.step({.zero_grad = true}); }),
                  fmt::format("call {}", at[0]));
        other.step({.zero_grad = true});
        EXPECT_TRUE(all_of(heard, one, -1) == all_of(plain, other, -1)) << step;
      }
    }
}

/// A non-dense parameter is copied before the step, and its copy back after it: calls of their own.
TEST(RefusedSteps, whose_copies_are_refused_are_made_wholly_or_not_at_all) {
  for (const Execution execution : kExecutions)
    for (const bool after : {false, true})
      for (int at = 0; at < 2; ++at) {
        SCOPED_TRACE(fmt::format("{}, {} copy {}", name(execution), after ? "after" : "before", at));
        const auto make = [] {
          std::mt19937_64 random(29);
          const Tensor p = parameter(random_tensor(random, {5, 8}, kF32).narrow(1, 1, 3));
          p.set_grad(random_tensor(random, {5, 3}, kF32));
          return p;
        };
        const Tensor heard = make(), plain = make();
        AdamW one({{"p", heard}}, {}, execution), other({{"p", plain}}, {}, execution);
        one.step(), other.step();
        EXPECT_EQ(error_of({.op = Op::copy, .after = after, .at = {at}}, [&] { one.step(); }),
                  fmt::format("call {}", at));
        if (at == 1) other.step();
        EXPECT_EQ(bits(heard), bits(plain));
        EXPECT_EQ(bits(one.state_dict().at("p.exp_avg")), bits(other.state_dict().at("p.exp_avg")));
        EXPECT_EQ(values(one.state_dict().at("p.step")), std::vector<double>{at == 1 ? 2.0 : 1.0});
      }
}

// ---- a training step ------------------------------------------------------------------------------------------------

/// What a listener does with what it hears.
enum class Holds { no_listener, nothing, facts, tensors };

struct Trained {
  std::string bits;
  size_t call_count = 0;
  std::vector<std::string> calls;
  int64_t peak = 0;
};

struct Notes {
  std::vector<std::string> calls;
  std::vector<door::Attribute> attributes;
  std::vector<uint64_t> storages;
  std::vector<door::Observed> tensors;
  Holds holds = Holds::nothing;
  size_t call_count = 0;
};
Notes g_notes;

void note_call(const door::CallView& call, void*) {
  ++g_notes.call_count;
  if (g_notes.holds == Holds::nothing) return;
  g_notes.calls.push_back(std::string(name(call.op)) + (call.in_place ? "_" : ""));
  g_notes.attributes.insert(g_notes.attributes.end(), call.attributes.begin(), call.attributes.end());
  const auto hold = [&](const Tensor& x) {
    if (!x.defined()) return;
    g_notes.storages.push_back(x.storage().id());
    if (g_notes.holds == Holds::tensors) g_notes.tensors.emplace_back(x);
  };
  for (const door::Input& x : call.inputs)
    if (x.tensor() != nullptr) hold(*x.tensor());
  for (const Tensor& x : call.outputs) hold(x);
}
constexpr door::Listener kNoting{.bit = kUserMode, .after = note_call};

/// Two steps of a small GPT: forward, backward, clip, step. The observer, if any, is shown their launches.
Trained train(Holds holds, device::LaunchObserver* observer = nullptr) {
  g_notes = {};
  g_notes.holds = holds;
  manual_seed(3);
  Trained made;
  {
    nn::GPT model({.vocab = 64, .context = 16, .layers = 2, .heads = 2, .width = 32, .dropout = 0.1});
    AdamW optimizer(model.named_parameters(), {.lr = 1e-2});
    const Tensor tokens = randint(64, {4, 16}), targets = randint(64, {4, 16});
    memory::reset_peak(default_device());
    std::optional<door::ListenerScope> listening;
    if (holds != Holds::no_listener) listening.emplace(kNoting);
    std::optional<device::ObserveLaunches> observing;
    if (observer != nullptr) observing.emplace(*observer);
    std::vector<Tensor> losses;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten());
      loss.backward();
      if (step == 0) {
        clip_grad_norm_(model.parameters(), 0.5);
        optimizer.step();
      } else {
        losses.push_back(optimizer.step({.max_norm = 0.5}));
      }
      losses.push_back(loss.detach());
    }
    observing.reset();
    listening.reset();
    for (const Tensor& loss : losses) made.bits += bits(loss);
    made.peak = memory::stats(default_device()).peak_allocated;
    for (const Tensor& x : model.parameters()) made.bits += bits(x);
  }
  made.call_count = g_notes.call_count;
  made.calls = std::move(g_notes.calls);
  g_notes = {};
  return made;
}

TEST(TrainingStep, is_the_same_whatever_listeners_hold) {
  train(Holds::no_listener);  // what is cached changes how much memory a block takes
  const Trained alone = train(Holds::no_listener), nothing = train(Holds::nothing), facts = train(Holds::facts),
                tensors = train(Holds::tensors);
  EXPECT_EQ(nothing.bits, alone.bits);
  EXPECT_EQ(facts.bits, alone.bits);
  EXPECT_EQ(tensors.bits, alone.bits);
  EXPECT_EQ(tensors.calls, facts.calls);
  EXPECT_EQ(nothing.call_count, facts.calls.size());
  for (const char* op : {"embedding", "linear", "cross_entropy", "cross_entropy_backward", "optimizer_step_"})
    EXPECT_GE(std::ranges::count(facts.calls, op), 2) << op;
  for (const char* op : {"clip_norm_", "clip_factor"}) EXPECT_EQ(std::ranges::count(facts.calls, op), 1) << op;
  for (const Trained* with : {&nothing, &facts})
    EXPECT_LE(static_cast<double>(with->peak), 1.05 * static_cast<double>(alone.peak));
}

TEST(TrainingStep, launches_the_same_kernels_when_somebody_listens) {
  if (default_device().is_cpu()) GTEST_SKIP() << "a GPU's launches";
  struct Functions final : device::LaunchObserver {
    std::vector<std::string> all;
    void launched(const device::Launch& launch) noexcept override { all.emplace_back(launch.function); }
  } alone, heard;
  train(Holds::no_listener);
  train(Holds::no_listener, &alone);
  train(Holds::facts, &heard);
  EXPECT_GT(alone.all.size(), 100u);
  EXPECT_EQ(heard.all, alone.all);
}

TEST(TrainingStep, has_an_operator_for_every_launch) {
  if (default_device().is_cpu()) GTEST_SKIP() << "a GPU's launches";
  struct Names final : device::LaunchObserver {
    int launches = 0;
    std::set<std::string> unnamed;
    void launched(const device::Launch& launch) noexcept override {
      ++launches;
      if (launch.operator_name == nullptr) unnamed.insert(launch.function);
    }
  } names;
  train(Holds::no_listener, &names);
  EXPECT_GT(names.launches, 100);
  EXPECT_EQ(names.unnamed, std::set<std::string>());
}

}  // namespace
}  // namespace lorry::optim::test
