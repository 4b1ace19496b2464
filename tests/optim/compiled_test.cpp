// Steps by recordings of rules: the bits of fused steps over long runs in which everything changes, rules of one's own
// without code for a device, and the sources that are generated for GPUs.

#include <gtest/gtest.h>

#include "lorry/optim/custom.h"
#include "lorry/optim/schedule.h"
#include "tests/optim/model.h"
#include "tests/optim/rules.h"
#include "tests/support/scale.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/kernels/cuda/fused/embedded.h"
#include "lorry/kernels/cuda/fused/runtime_compiler.h"
#include "lorry/kernels/cuda/optim/emit_rule.h"
#endif

namespace lorry::optim::test {
namespace {

/// Every number among the settings takes another value now and then, within its domain, and is zero at times.
template <class Optimizer>
void change_settings(Optimizer& optimizer, std::mt19937_64& random) {
  for (const std::string& name : optimizer.settings(0)) {
    if (random() % 40 != 0) continue;
    const double now = optimizer.get(0, name);
    for (const double value : {random() % 4 == 0 ? 0.0 : now * (0.5 + static_cast<double>(random() % 100) / 100), now})
      try {
        optimizer.set(0, name, value);
        break;
      } catch (const ValueError&) {  // outside its domain
      }
  }
}

template <class Rule>
std::string after_steps(Execution execution, const Memory& memory, DType dtype, int variant, int steps) {
  Model model(17, dtype, 5);
  Any<Rule> optimizer(model.params, settings_of<Rule>(variant), execution, memory);
  LRScheduler schedule(optimizer, {.kind = Schedule::Kind::cosine, .warmup = steps / 20, .steps = steps});
  std::mt19937_64 random(23);
  model.give_gradients();
  for (int step = 0; step < steps; ++step) {
    if (step % 10 == 0) model.give_gradients();
    if (step % 7 == 3)
      (void)optimizer.step({.max_norm = 1, .skip_nonfinite = true});
    else
      optimizer.step();
    schedule.step();
    change_settings(optimizer, random);
  }
  return model.all_bits() + all_bits(optimizer);
}

TEST(CompiledRules, give_the_bits_of_fused_steps_over_a_thousand_steps_of_changing_schedules) {
  const int steps = static_cast<int>(lorry::test::scaled(1000));
  formula::Rules::each([&]<class Rule>() {
    for (int variant = 0; variant < kVariants; ++variant) {
      SCOPED_TRACE(fmt::format("{} variant {}", Rule::kName, variant));
      const auto run = [&](Execution execution) { return after_steps<Rule>(execution, {}, kF32, variant, steps); };
      EXPECT_TRUE(run(Execution::compiled) == run(Execution::fused));
    }
  });
}

TEST(CompiledRules, give_the_bits_of_fused_steps_with_states_and_parameters_of_every_kind) {
  formula::Rules::each([&]<class Rule>() {
    for (const DType dtype : {kF32, kF64, kF16, kBF16})
      for (const Masters masters : {Masters::none, Masters::f32, Masters::split, Masters::stochastic})
        for (const StateType states : {StateType::f32, StateType::bf16, StateType::q8}) {
          if (!is_narrow(dtype) && masters != Masters::none) continue;
          if (dtype == kF16 && (masters == Masters::split || masters == Masters::stochastic)) continue;
          if (dtype == kF64 && states != StateType::f32) continue;
          SCOPED_TRACE(fmt::format("{} in {}, masters {}, states {}", Rule::kName, dtype, name(masters), name(states)));
          const Memory memory{.masters = masters, .states = states, .seed = 5};
          const auto run = [&](Execution execution) { return after_steps<Rule>(execution, memory, dtype, 1, 12); };
          EXPECT_TRUE(run(Execution::compiled) == run(Execution::fused));
        }
  });
}

/// Results that are other values as they are, constants, and each other's old values.
TEST(CompiledRules, results_may_be_anything) {
  const auto turned = rule<2>([]<class V>(V& param, V grad, V* states, const auto& h) {
    const V old = states[0];
    states[0] = param;
    param = states[1];
    states[1] = select(grad > V(0), old, h.lr * V(1) + grad);
  });
  const auto reset = rule<1>([]<class V>(V& param, V grad, V* states, const auto& h) {
    states[0] = V(0.1);
    param = h.lr * V(1);
    static_cast<void>(grad);
  });
  const auto nothing = rule<0>([](auto&, auto, auto*, const auto&) {});
  const auto expect = [](const auto& own) {
    std::string expected;
    for (const Execution execution : {Execution::loop, Execution::compiled})
      for (const DType dtype : {kF32, kF64}) {
        Model model(3, dtype);
        Custom optimizer(model.params, own, execution);
        for (int step = 0; step < 5; ++step) {
          model.give_gradients();
          optimizer.step();
        }
        const std::string got = model.all_bits() + all_bits(optimizer);
        if (execution == Execution::loop)
          expected += got;
        else
          EXPECT_NE(expected.find(got), std::string::npos) << dtype;
      }
  };
  expect(turned);
  expect(reset);
  expect(nothing);
}

struct OtherMembers : formula::Sgd<false> {
  static constexpr const char* kName = "other_members";
  template <class V>
  struct Hyper {
    V lr;
    int mode;
    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(lr), mode};
    }
  };
  static LORRY_INLINE Hyper<double> advance(Progress& p, const Settings& s) {
    p.steps += 1;
    return {s.lr, 0};
  }
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V*, const H& h) const {
    param = param - h.lr * grad;
  }
};

TEST(CompiledRules, refuse_flags_that_are_no_bools) {
  EXPECT_EQ(message<ValueError>([] {
              Custom<OtherMembers>(std::vector<NamedTensor>{{"a", parameter({1})}}, formula::Sgd<false>::Settings(),
                                   Execution::compiled);
            }),
            "other_members: rule 'other_members' cannot be compiled; got a Hyper with members of other types and 3 "
            "settings that may change; expected numbers and at most 5 bools behind them, and with bools at most 12 "
            "settings; or take another execution");
}

/// With a flag, and more settings that may change than choices can be looked at.
struct ManySettings {
  static constexpr const char* kName = "many_settings";
  static constexpr int kStates = 0;
  struct Settings {
    double lr = 1e-3, more[1] = {};
  };
  static constexpr auto kSettings = [] {
    std::array<formula::Setting<Settings>, 13> all{};
    all.fill({"lr", &Settings::lr});
    return all;
  }();
  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};
  template <class V>
  struct Hyper {
    V lr;
    bool flag;
    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(lr), flag};
    }
  };
  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    return {s.lr, s.more[0] != 0};
  }
  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V*, const H& h) const {
    param = param - h.lr * grad;
  }
};

TEST(CompiledRules, refuse_more_settings_than_choices_can_be_looked_at) {
  const std::vector<NamedTensor> params = {{"a", parameter({1})}};
  EXPECT_NE(message<ValueError>([&] {
              Custom<ManySettings>(params, ManySettings::Settings(), Execution::compiled);
            }).find("13 settings that may change"),
            std::string::npos);
  if (!default_device().is_cpu()) return;  // where the other executions have no code for a rule of this file
  EXPECT_EQ(Custom<ManySettings>(params, ManySettings::Settings(), Execution::fused).memory_report().steps.size(), 3u)
      << "no step that is compiled";
}

#ifdef LORRY_WITH_CUDA

std::string said_of(const kernels::RecordedRule& rule, const std::string& body, const std::string& source) {
  return kernels::cuda::Nvrtc::get()
      .compile(kernels::cuda::emit_step(rule, "compiled_step", body, source), kernels::cuda::embedded_headers(),
               kernels::cuda::nvrtc_flags("sm_90"))
      .log;
}

TEST(CompiledRules, have_sources_that_nvrtc_takes_without_a_word) {
  if (const std::string& why = kernels::cuda::Nvrtc::get().missing(); !why.empty()) GTEST_SKIP() << why;
  formula::Rules::each([&]<class Rule>() {
    const detail::TypedRule<Rule> rule(settings_of<Rule>(0));
    for (const bool f64 : {false, true}) {
      const auto recorded = detail::record_rule(rule, *rule.make_blocks(kCPU, f64), f64);
      recorded->reachable = (1u << (recorded->updates.size() - 1)) | 1;
      EXPECT_EQ(said_of(*recorded, f64 ? "StepUniform<Rule, double>" : "StepUniform<Rule, float>", "Table"), "")
          << Rule::kName;
    }
  });
  const detail::TypedRule<formula::AdamW<true>> rule(formula::AdamW<true>::Settings{});
  const auto recorded = detail::record_rule(rule, *rule.make_blocks(kCPU, false), false);
  recorded->reachable = 1;
  for (const char* body :
       {"StepNarrow<Rule, BFloat16, float>", "StepNarrow<Rule, Float16, Float16>",
        "StepCompressed<Rule, float, StateTypes::q8>", "StepCompressed<Rule, BFloat16, StateTypes::mixed>"})
    EXPECT_EQ(said_of(*recorded, body, "Arguments32K"), "") << body;
}

#endif  // LORRY_WITH_CUDA

}  // namespace
}  // namespace lorry::optim::test
