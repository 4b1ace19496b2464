// Whole optimizer steps over the parameters of models, by rule, execution and strategy, compared with a copy: a fused
// step moves each byte of parameter, gradient and state once and cannot be faster. A case is named "MODEL RULE
// EXECUTION[ STRATEGY][, WHAT ELSE]". bench/peers/optim_torch.py and optim_optax.py take the same steps.

#include <fmt/core.h>

#include <memory>
#include <tuple>

#include "lorry/bench/optim_memory.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/clip.h"
#include "lorry/optim/custom.h"
#include "lorry/optim/rules/adam.h"

namespace lorry::bench {
namespace {

using optim::Execution;
using Steps = std::unique_ptr<optim::Optimizer>;

struct Rule {
  const char* name;
  int states;
  Steps (*make)(const std::vector<Tensor>& params, Execution execution);

  /// It reads parameter, gradient and states, and writes parameter and states.
  int64_t bytes_an_element() const { return 4 * (3 + 2 * states); }
};

/// A rule from the list of rules, with default settings. The work that the public optimizers add is done once per step.
template <class R>
constexpr Rule rule() {
  return {R::kName, R::kStates, [](const std::vector<Tensor>& params, Execution execution) -> Steps {
            return std::make_unique<optim::Custom<R>>(optim::numbered(params), formula::SettingsOf<R>{.lr = kRate},
                                                      execution);
          }};
}

constexpr Rule kAdamW = rule<formula::AdamW<false>>(), kMomentum = rule<formula::Sgd<true>>();

constexpr Strategy kStrategies[] = {Strategy::per_tensor, Strategy::kernel_args_4k, Strategy::kernel_args_32k,
                                    Strategy::device_table};

/// Null if the execution is not available.
Steps try_make(const Rule& rule, const std::vector<Tensor>& params, Execution execution) {
  try {
    return rule.make(params, execution);
  } catch (const ValueError&) {
    return nullptr;
  }
}

void executions(ModelCases& cases, const ModelShapes& model, const std::vector<Tensor>& params, const Rule& rule) {
  for (const Execution execution : {Execution::loop, Execution::foreach, Execution::fused, Execution::compiled}) {
    const std::string label = fmt::format("{} {}", rule.name, optim::name(execution));
    if (!cases.wants(model, label)) continue;
    if (const Steps steps = try_make(rule, params, execution))
      cases.add(model, label, rule.bytes_an_element(), [&] { steps->step(); });
  }
}

void strategies(ModelCases& cases, const ModelShapes& model, const std::vector<Tensor>& params) {
  if (default_device().is_cpu()) return;  // strategies make no difference there
  for (const Strategy strategy : kStrategies) {
    const std::string label = fmt::format("adamw fused {}", lorry::name(strategy));
    if (!cases.wants(model, label)) continue;
    const Steps steps = kAdamW.make(params, Execution::fused);
    steps->set_strategy(strategy);
    cases.add(model, label, kAdamW.bytes_an_element(), [&] { steps->step(); });
  }
}

/// Steps with further work, and steps after gradients have moved.
void around_the_step(ModelCases& cases, const ModelShapes& model, const std::vector<Tensor>& params) {
  if (const std::string label = "adamw fused, clip"; cases.wants(model, label)) {
    // Gradients are divided by the loss scale and clipped to a norm, and the step is skipped if that is not finite. The
    // norm reads the gradients once more.
    const Steps steps = kAdamW.make(params, Execution::fused);
    const optim::StepOptions options{.max_norm = 1, .skip_nonfinite = true, .scale = full({}, 1.0, {.dtype = kF64})};
    cases.add(model, label, kAdamW.bytes_an_element() + 4, [&] { steps->step(options); });
  }
  // Gradients that alternate between two buffers: one of them, and all of them, as if zero_grad released them and the
  // next backward pass made new ones.
  for (const bool all : {false, true}) {
    const std::string label = fmt::format("adamw fused, {} elsewhere", all ? "every gradient" : "one gradient");
    if (!cases.wants(model, label)) continue;
    const Steps steps = kAdamW.make(params, Execution::fused);
    const size_t begin = all ? 0 : params.size() / 2, end = all ? params.size() : begin + 1;
    std::vector<Tensor> grads[2];
    for (size_t i = begin; i < end; ++i) {
      grads[0].push_back(params[i].grad());
      grads[1].push_back(params[i].grad().clone());
    }
    int now = 0;
    const auto move_to = [&](int which) {
      for (size_t i = begin; i < end; ++i) params[i].set_grad(grads[which][i - begin]);
    };
    cases.add(model, label, kAdamW.bytes_an_element(), [&] {
      move_to(now = 1 - now);
      steps->step();
    });
    move_to(0);
  }
  cases.add(model, "clip_grad_norm_", 4, [&] { optim::clip_grad_norm_(params, 1e30); });
}

/// bf16 parameters and gradients, f32 states, and for each parameter its f32 master (14 bytes read, the parameter not
/// among them, and 14 written) or the lower half of it (14 read, 12 written).
void masters(ModelCases& cases, const ModelShapes& model) {
  for (const auto& [label, kind, bytes] :
       {std::tuple("adamw fused, bf16 with masters", optim::Masters::f32, 28),
        std::tuple("adamw fused, bf16 with split masters", optim::Masters::split, 26)}) {
    if (!cases.wants(model, label)) continue;
    const std::vector<Tensor> params = parameters(model, kBF16);
    const Steps steps = std::make_unique<optim::AdamW>(
        optim::numbered(params), optim::AdamWOptions{.lr = 1e-6, .memory = {.masters = kind}}, Execution::fused);
    cases.add(
        model, label, bytes, [&] { steps->step(); }, kBF16);
  }
}

}  // namespace

std::vector<Result> optim_suite(const Filter& filter) {
  ModelCases cases("optim", filter);
  // Parameter, gradient, two states, and the intermediate lists of the foreach execution.
  for (const ModelShapes* model : cases.models(4 * 14)) {
    {
      const std::vector<Tensor> params = parameters(*model);
      executions(cases, *model, params, kAdamW);
      strategies(cases, *model, params);
      executions(cases, *model, params, kMomentum);
      around_the_step(cases, *model, params);
      if (model->name == (default_device().is_cpu() ? "resnet50" : "gpt2"))
        formula::Rules::each([&]<class R> {
          if (rule<R>().name != kAdamW.name && rule<R>().name != kMomentum.name)
            executions(cases, *model, params, rule<R>());
        });
    }
    masters(cases, *model);
    optim_memory_cases(cases, *model);
    memory::empty_cache(default_device());
  }
  return cases.rows();
}

}  // namespace lorry::bench
