#include "lorry/optim/report.h"

#include <algorithm>

#include "lorry/autograd/grad_mode.h"
#include "lorry/kernels/meta.h"
#include "lorry/memory/meta_allocator.h"
#include "lorry/ops/creation.h"
#include "lorry/optim/stepper.h"

namespace lorry::optim {
namespace {

std::string in_units(int64_t bytes) {
  const auto x = static_cast<double>(bytes);
  return bytes >= 1'000'000'000 ? fmt::format("{:.2f} GB", x / 1e9)
         : bytes >= 1'000'000   ? fmt::format("{:.1f} MB", x / 1e6)
                                : fmt::format("{:.1f} kB", x / 1e3);
}

}  // namespace

std::string MemoryReport::text() const {
  std::string text;
  const auto line = [&](const char* what, int64_t bytes, const std::string& more = "") {
    text += fmt::format("{:<13} {:>10}{}\n", what, in_units(bytes), more);
  };
  const auto by_placement = [](const BytesByPlacement& placed) {
    std::string where;
    for (const auto& [bytes, name] :
         {std::pair(placed.pinned, "in pinned host memory"), std::pair(placed.managed, "in managed memory")})
      if (bytes > 0) where += fmt::format(", {} of it {}", in_units(bytes), name);
    return where;
  };
  line("parameters", parameters);
  line("gradients", gradients);
  line("states", states.total(), by_placement(states));
  if (masters.total() > 0) line("masters", masters.total(), by_placement(masters));
  if (copies > 0) line("copies", copies);
  if (chunks > 0) line("chunks", chunks);
  for (const Step& step : steps)
    line(std::string(name(step.execution)).c_str(), step.intermediates,
         fmt::format(" while it steps, {} call{}", step.calls, step.calls == 1 ? "" : "s"));
  if (budget > 0) line("budget", budget);
  return text;
}

MemoryReport Stepper::memory_report(bool by_factor) const {
  MemoryReport report;
  report.budget = budget_;
  for (const Slot& slot : slots_) {
    report.parameters += slot.param.nbytes();
    if (const Tensor grad = slot.param.grad(); grad.defined()) report.gradients += grad.nbytes();
  }
  const ModeScope quiet(0, kListenerModes | kInferenceMode);
  const memory::Estimate estimate;
  for (const Execution execution : {Execution::loop, Execution::foreach, Execution::fused, Execution::compiled}) {
    if (execution == Execution::compiled &&
        !std::ranges::all_of(groups_, [](const auto& group) { return detail::is_recordable(*group.rule); }))
      continue;
    Stepper same(where_, execution);
    add_parameters_on_meta(same);
    same.run_on_meta(report.steps.emplace_back(execution), by_factor);
    if (execution == Execution::fused) same.report_arrays(report);
  }
  return report;
}

void Stepper::add_parameters_on_meta(Stepper& to) const {
  std::vector<std::pair<FamilyKind, DType>> grad_dtypes;
  const auto grad_dtype_of_slot = [&](const Slot& slot) {
    const FamilyKind kind = kind_of(slot);
    const auto known = std::ranges::find(grad_dtypes, kind, &std::pair<FamilyKind, DType>::first);
    return known != grad_dtypes.end() ? known->second : grad_dtypes.emplace_back(kind, grad_dtype_of(kind)).second;
  };
  for (int g = 0; g < groups(); ++g) {
    std::vector<NamedTensor> params;
    for (const Slot& slot : slots_) {
      if (slot.group != g) continue;
      const Tensor &param = slot.param, grad = param.grad();
      const Device device = memory::stand_in(param.device());
      const Tensor there = empty_strided(param.sizes(), param.strides(), {param.dtype(), device}).requires_grad_();
      // A parameter without a gradient counts as if it had one.
      there.set_grad(grad.defined() ? empty_strided(grad.sizes(), grad.strides(), {grad.dtype(), device})
                                    : empty_like(there, grad_dtype_of_slot(slot)));
      params.emplace_back(slot.name, there);
    }
    to.add_group(params, groups_[static_cast<size_t>(g)].rule, groups_[static_cast<size_t>(g)].memory);
  }
  to.strategy_ = strategy_;
  // Where an execution cannot keep the budget, the smallest that it can keep is reported.
  if (budget_ > 0) to.budget_ = std::max(budget_, to.needed_budget());
}

void Stepper::run_on_meta(MemoryReport::Step& step, bool by_factor) {
  const NoGrad quiet;
  std::vector<Device> devices;
  for (const Slot& slot : slots_)
    if (std::ranges::find(devices, slot.param.device()) == devices.end()) devices.push_back(slot.param.device());
  Factors factors;
  if (by_factor)
    for (const Device device : devices) factors.push_back(empty({}, {kF64, device}));
  refresh();  // the first step makes states, lists and copies
  run(factors, false);
  int64_t before = 0, most = 0;
  for (const Device device : devices) {
    memory::reset_peak(device);
    before += memory::stats(device).allocated;
  }
  const int64_t calls = kernels::meta::calls();
  refresh();
  plan_->fill_copies();
  run(factors, false);
  step.calls = kernels::meta::calls() - calls;
  for (const Device device : devices) most += memory::stats(device).peak_allocated;
  step.intermediates = most - before;
}

void Stepper::report_arrays(MemoryReport& report) const {
  for (const Family& family : families_)
    if (family.step != nullptr) report.chunks += family.step->chunk_bytes();
  for (const Slot& slot : slots_) {
    for (const Tensor& copy : {slot.dense_param, slot.grad_copy})
      if (copy.defined()) report.copies += copy.nbytes();
    const FamilyKind kind = kind_of(slot);
    for (int k = 0; k < kind.arrays(); ++k) {
      MemoryReport::BytesByPlacement& placed = k < kind.rule->states ? report.states : report.masters;
      const Placement placement = kind.memory.placement;
      (placement == Placement::pinned    ? placed.pinned
       : placement == Placement::managed ? placed.managed
                                         : placed.device) += slot.states[k].nbytes();
    }
  }
}

}  // namespace lorry::optim
