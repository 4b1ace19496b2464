// Optimizers on meta: steps that compute nothing, and the reports that are read from them.

#include <bit>

#include "lorry/base/events.h"
#include "lorry/kernels/meta.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/optim/custom.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

const Dims kSizes[] = {{3, 5}, {1000}, {0}, {}, {57, 33}};

/// Dense parameters, a transposed one and a non-dense one, with gradients.
std::vector<NamedTensor> model(Device device, DType dtype, DType grad_dtype) {
  std::vector<Tensor> tensors;
  for (const Dims& sizes : kSizes) tensors.push_back(zeros(sizes, {dtype, device}));
  tensors.push_back(zeros({40, 30}, {dtype, device}).t());
  tensors.push_back(zeros({50, 30}, {dtype, device}).narrow(1, 3, 20));
  for (Tensor& x : tensors) {
    x = parameter(x.detach());
    x.set_grad(zeros(x.sizes(), {grad_dtype, device}));
  }
  return numbered(tensors);
}

const Memory kMemories[] = {{},
                            {.masters = Masters::f32},
                            {.masters = Masters::split, .states = StateType::q8},
                            {.masters = Masters::stochastic, .states = StateType::bf16, .seed = 3}};

TEST(OptimMeta, steps_of_every_rule_and_execution_count_as_steps_and_take_the_memory_of_states) {
  formula::Rules::each([]<class Rule>() {
    for (const Memory& memory : kMemories)
      for (const Execution execution : kExecutions) {
        SCOPED_TRACE(fmt::format("{} by {}, masters {}", Rule::kName, name(execution), name(memory.masters)));
        const auto params = model(kMeta, kBF16, kBF16), same = model(default_device(), kBF16, kBF16);
        const int64_t before = memory::stats(kMeta).allocated;
        Any<Rule> optimizer(params, settings_of<Rule>(1), execution, memory),
            other(same, settings_of<Rule>(1), execution, memory);
        for (Optimizer* each : {static_cast<Optimizer*>(&optimizer), static_cast<Optimizer*>(&other)}) {
          each->step();
          each->step({.max_norm = 1, .skip_nonfinite = true, .zero_grad = true});
        }
        for (size_t i = 0; i < params.size(); ++i) {
          EXPECT_EQ(params[i].second.version(), same[i].second.version()) << i;
          EXPECT_EQ(params[i].second.grad().version(), same[i].second.grad().version()) << i;
        }
        const MemoryReport report = other.memory_report();
        const int64_t kept = report.states.total() + report.masters.total() + report.copies;
        const int64_t taken = memory::stats(kMeta).allocated - before;
        EXPECT_GE(taken, kept);
        EXPECT_LE(taken, kept + (64 << 10)) << "hyper blocks, and sizes that are rounded";
        EXPECT_THROW(optimizer.state_dict(), DeviceError) << "step counts are elements";
      }
  });
}

TEST(OptimMeta, a_step_makes_the_same_calls_when_somebody_listens) {
  static constexpr door::Listener kSilent{.bit = kUserMode};
  for (const Execution execution : kExecutions) {
    SCOPED_TRACE(name(execution));
    AdamW optimizer(model(kMeta, kF32, kF32), {}, execution);
    const auto calls_of_step = [&] {
      const int64_t before = kernels::meta::calls();
      optimizer.step({.max_norm = 1, .zero_grad = true});
      return kernels::meta::calls() - before;
    };
    calls_of_step();
    const int64_t alone = calls_of_step();
    const door::ListenerScope listening(kSilent);
    EXPECT_EQ(calls_of_step(), alone);
  }
}

TEST(OptimMeta, rules_of_users_are_stepped_too) {
  for (const Execution execution : kExecutions) {
    const auto params = model(kMeta, kF32, kF32);
    Custom optimizer(params, rule<0>([](auto& x, auto g, auto*, const auto& h) { x -= h.lr * g; }), execution);
    const uint32_t before = params[1].second.version();
    optimizer.step();
    EXPECT_GT(params[1].second.version(), before) << name(execution);
  }
}

TEST(OptimMeta, a_report_leaves_no_trace) {
  const auto params = model(default_device(), kF32, kF32);
  AdamW adamw(params, {}, Execution::foreach);
  adamw.step();
  const memory::Stats meta = memory::stats(kMeta), own = memory::stats(default_device());
  int events_heard = 0;
  const events::Handler before = events::set_handler([&](const events::Event&) { ++events_heard; });
  const MemoryReport first = adamw.memory_report();
  events::set_handler(before);
  EXPECT_EQ(events_heard, 0) << "of copies that are not made";
  EXPECT_EQ(memory::stats(kMeta).peak_allocated, meta.peak_allocated);
  EXPECT_EQ(memory::stats(default_device()).allocated, own.allocated);
  EXPECT_EQ(first.copies, 4 * (1000 + 1200)) << "the non-dense parameter, and the gradient of the transposed one";
  EXPECT_EQ(adamw.memory_report().text(), first.text());
  for (const auto& [name, p] : params) EXPECT_TRUE(p.grad().defined());
}

TEST(OptimMeta, the_report_counts_the_calls_that_a_step_makes) {
  for (const Execution execution : {Execution::loop, Execution::foreach}) {
    const auto there = model(kMeta, kF32, kF32), here = model(default_device(), kF32, kF32);
    AdamW on_meta(there, {}, execution), adamw(here, {}, execution);
    on_meta.step();
    const int64_t before = kernels::meta::calls();
    on_meta.step();
    const int64_t calls = kernels::meta::calls() - before;  // before the report, which makes calls of its own
    EXPECT_EQ(adamw.memory_report().steps[execution == Execution::loop ? 0 : 1].calls, calls);
  }
}

TEST(OptimMeta, the_report_counts_a_launch_for_each_tensor_where_each_has_its_own) {
  AdamW adamw(model(default_device(), kF32, kF32));
  const MemoryReport together = adamw.memory_report();
  adamw.set_strategy(Strategy::per_tensor);
  const MemoryReport each = adamw.memory_report();
  EXPECT_EQ(together.steps[2].calls + 5, each.steps[2].calls) << "six parameters have elements";
  EXPECT_EQ(together.steps[1].calls, each.steps[1].calls) << "foreach chooses for itself";
}

TEST(OptimMeta, pinned_states_stream_in_chunks) {
  std::vector<Tensor> params;
  for (const Dims& sizes : {Dims{3'000'005}, Dims{1'000}, Dims{0}, Dims{65'536}}) {
    params.push_back(parameter(zeros(sizes, {kF32, kMeta})));
    params.back().set_grad(zeros(sizes, {kF64, kMeta}));
  }
  AdamW on_device(numbered(params)), pinned(numbered(params), {.memory = {.placement = Placement::pinned}});
  EXPECT_EQ(on_device.memory_report().chunks, 0);
  const MemoryReport report = pinned.memory_report();
  EXPECT_GT(report.chunks, 22 << 20) << "three chunks";
  EXPECT_LE(report.chunks, 24 << 20);
  const int64_t plain = on_device.memory_report().steps[2].calls;
  EXPECT_EQ(report.steps[2].calls, plain + 3 + 1) << "a call for each chunk, and one that advances the hyper blocks";
  EXPECT_EQ(report.copies, 4 * (3'000'005 + 1'000 + 65'536));
}

TEST(OptimMeta, the_report_is_what_the_device_would_take_wherever_the_parameters_lie) {
  // A model of a terabyte, which only meta holds.
  const Tensor p = parameter(zeros({int64_t{1} << 38}, {.dtype = kF32, .device = kMeta}));
  AdamW adamw({{"p", p}}, {}, Execution::foreach);
  const MemoryReport report = adamw.memory_report();
  EXPECT_EQ(report.parameters, int64_t{4} << 38);
  EXPECT_EQ(report.states.device, int64_t{8} << 38);
  EXPECT_GE(report.steps[1].intermediates, int64_t{4} << 38);
  EXPECT_EQ(report.steps[2].intermediates, 0);
}

}  // namespace
}  // namespace lorry::optim::test
