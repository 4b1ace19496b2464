#include <fmt/core.h>

#include "lorry/bench/optim_memory.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/rules/adam.h"

namespace lorry::bench {
namespace {

using optim::Execution;
using optim::Masters;
using optim::Memory;
using optim::Placement;
using optim::StateType;

/// It reads parameter (unless there is a master), gradient, states and master, and writes all but the gradient. The
/// scales of 8-bit states take a 32nd of a byte per element.
int64_t bytes_an_element(DType dtype, const Memory& memory) {
  int64_t bytes = 3 * size_of(dtype);
  for (int k = 0; k < 2; ++k)
    bytes += 2 * (memory.states[k] == StateType::f32 ? 4 : memory.states[k] == StateType::bf16 ? 2 : 1);
  if (memory.masters == Masters::f32) bytes += 8 - size_of(dtype);
  if (memory.masters == Masters::split) bytes += 4;
  return bytes;
}

/// The options that are not the default, as text: ", q8 states, split masters, in pinned memory".
std::string text_of(const Memory& memory) {
  std::string text;
  if (memory.states != optim::StateTypes()) text += fmt::format(", {} states", name(memory.states));
  if (memory.masters == Masters::stochastic) text += ", rounded stochastically";
  if (memory.masters == Masters::f32 || memory.masters == Masters::split)
    text += fmt::format(", {} masters", name(memory.masters));
  if (memory.placement != Placement::device) text += fmt::format(", in {} memory", name(memory.placement));
  return text;
}

/// Measures one case. If this build or device does not support it, that is printed and the case is left out.
void measure_step(ModelCases& cases, const ModelShapes& model, DType dtype, const Memory& memory, Execution execution,
                  int64_t budget = 0) {
  const std::string label =
      fmt::format("adamw {}{}{}", name(execution), dtype == kF32 ? "" : fmt::format(", {}", dtype), text_of(memory));
  if (!cases.wants(model, label)) return;
  try {
    const std::vector<Tensor> params = parameters(model, dtype);
    optim::AdamW adamw(optim::numbered(params), {.lr = kRate, .memory = memory}, execution);
    if (execution != Execution::fused) adamw.set_memory_budget(budget);
    cases.add(
        model, label, bytes_an_element(dtype, memory), [&] { adamw.step(); }, dtype);
    const optim::MemoryReport report = adamw.memory_report();
    Result& row = cases.last();
    row.state_bytes = report.states.total() + report.masters.total();
    for (const optim::MemoryReport::Step& step : report.steps)
      if (step.execution == execution) row.counted_bytes = step.intermediates;
  } catch (const Error& error) {
    fmt::print(stderr, "optim: {} {} is left out: {}\n", model.name, label, error.what());
  }
  memory::empty_cache(default_device());
}

/// Measures copies between pinned memory and the device, in each direction, and in both at once, as a step over states
/// in pinned memory needs them.
void link_rows(ModelCases& cases) {
  const Device device = default_device();
  constexpr int64_t kBytes = 256 << 20;
  const Tensor host[] = {empty_pinned({kBytes}, kU8), empty_pinned({kBytes}, kU8)};
  const Tensor there[] = {empty({kBytes}, {.dtype = kU8}), empty({kBytes}, {.dtype = kU8})};
  const OwnedStream streams[] = {OwnedStream(device), OwnedStream(device)};
  for (const auto& [name, to, from] :
       {std::tuple("link, to the device", true, false), std::tuple("link, from the device", false, true),
        std::tuple("link, both ways", true, true)}) {
    const bool sends = to, fetches = from;
    Result row{.suite = cases.suite(), .name = name, .time = {}, .bytes = kBytes * (sends + fetches)};
    row.time = profile::benchmark(
        [&] {
          if (sends) device::copy(there[0].data_ptr(), device, host[0].data_ptr(), kCPU, kBytes, streams[0]);
          if (fetches) device::copy(host[1].data_ptr(), kCPU, there[1].data_ptr(), device, kBytes, streams[1]);
        },
        ModelCases::options(device));
    cases.add_row(row);
  }
  device::synchronize(device);
}

constexpr StateType kTypes[] = {StateType::f32, StateType::bf16, StateType::q8};
constexpr Placement kPlacements[] = {Placement::device, Placement::pinned, Placement::managed};

}  // namespace

std::vector<Tensor> parameters(const ModelShapes& model, DType dtype) {
  std::vector<Tensor> params = tensors_of(model, 0.5, dtype);
  const std::vector<Tensor> grads = tensors_of(model, 0.01, dtype);
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].requires_grad_();
    params[i].set_grad(grads[i]);
  }
  return params;
}

void optim_memory_cases(ModelCases& cases, const ModelShapes& model) {
  const bool on_cpu = default_device().is_cpu();
  if (model.name != (on_cpu ? "resnet50" : "gpt2") && model.name != "llama-1b") return;
  for (const StateType type : {StateType::bf16, StateType::q8})
    measure_step(cases, model, kF32, {.states = type}, Execution::fused);
  for (const StateType type : kTypes)
    measure_step(cases, model, kBF16, {.masters = Masters::stochastic, .states = type}, Execution::fused);
  if (const std::string label = "own_momentum fused"; cases.wants(model, label)) {
    const std::vector<Tensor> params = parameters(model);
    const auto own = make_own_momentum(params, kRate);
    cases.add(model, label, 20, [&] { own->step(); });
  }
  if (on_cpu || model.name != "gpt2") return;
  for (const Placement placement : {Placement::pinned, Placement::managed})
    for (const StateType type : {StateType::f32, StateType::q8})
      measure_step(cases, model, kF32, {.states = type, .placement = placement}, Execution::fused);
  if (cases.wants(model, "adamw fused, in pinned memory")) link_rows(cases);
}

std::vector<Result> optim_memory_suite(const Filter& filter, const OptimMemoryOptions& options) {
  ModelCases cases("optim", filter);
  const DType dtype = options.masters ? kBF16 : kF32;
  Memory memory{.masters = options.masters.value_or(Masters::none),
                .states = options.states.value_or(StateType::f32),
                .placement = options.placement.value_or(Placement::device)};
  constexpr Execution kExecutions[] = {Execution::fused, Execution::foreach, Execution::loop};
  if (!options.report) {
    for (const ModelShapes* model : cases.models(4 * 14))
      for (const Execution execution : kExecutions)
        measure_step(cases, *model, dtype, memory, execution, options.memory_budget);
    return cases.rows();
  }
  const bool on_cpu = default_device().is_cpu();
  const ModelShapes& model = model_shapes(!options.model.empty() ? std::string_view(options.model)
                                          : on_cpu               ? "efficientnet_b0"
                                                                 : "gpt2");
  for (const Execution execution : kExecutions)
    for (const StateType type : kTypes)
      for (const Placement placement : kPlacements) {
        if (on_cpu && placement != Placement::device) continue;
        if ((options.states && *options.states != optim::StateTypes(type)) ||
            (options.placement && *options.placement != placement))
          continue;
        memory.states = type, memory.placement = placement;
        measure_step(cases, model, dtype, memory, execution, options.memory_budget);
      }
  return cases.rows();
}

}  // namespace lorry::bench
