#include "lorry/optim/report.h"

#include <algorithm>

#include "lorry/formula/quantize.h"
#include "lorry/optim/execution/streamed.h"
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
  const auto places = [](const Placed& placed) {
    std::string where;
    for (const auto& [bytes, name] :
         {std::pair(placed.pinned, "in pinned host memory"), std::pair(placed.managed, "in managed memory")})
      if (bytes > 0) where += fmt::format(", {} of it {}", in_units(bytes), name);
    return where;
  };
  line("parameters", parameters);
  line("gradients", gradients);
  line("states", states.total(), places(states));
  if (masters.total() > 0) line("masters", masters.total(), places(masters));
  if (copies > 0) line("copies", copies);
  if (chunks > 0) line("chunks", chunks);
  for (const Step& step : steps)
    line(std::string(name(step.execution)).c_str(), step.intermediates,
         fmt::format(" while it steps, {} call{}", step.calls, step.calls == 1 ? "" : "s"));
  if (budget > 0) line("budget", budget);
  return text;
}

/// Parameters that one program steps.
struct Stepper::Together {
  Kind kind;
  int group, hyper_block;
  DType grad_dtype;
  int64_t tensors = 0, elements = 0, largest = 0;
};

void Stepper::add_eager_step(MemoryReport::Step& step, const Together& x, bool by_factor) const {
  if (!steps_eagerly(step.execution, x.kind, x.grad_dtype)) return;
  const GroupState& group = groups_[x.group];
  const Program program = program_of(x.kind, group, shape_of(x.kind, x.grad_dtype, step.execution, by_factor));
  const int64_t bytes = program.bytes_per_element(), calls = static_cast<int64_t>(program.arrays.size());
  const int64_t most = std::max<int64_t>(elements_within(budget_of(step.execution), bytes), 1),
                at_once = step.execution == Execution::loop ? x.largest : x.elements;
  step.intermediates = std::max(step.intermediates, bytes * std::min(at_once, most));
  step.calls += static_cast<int64_t>(program.numbers.size());
  if (step.execution != Execution::loop) {
    step.calls += calls * std::max<int64_t>(1, (x.elements - 1) / most + 1);
    return;
  }
  for (const Slot& slot : slots_)
    if (slot.group == x.group && slot.hyper_block == x.hyper_block && kind_of(slot) == x.kind)
      step.calls += calls * std::max<int64_t>(1, (slot.param.numel() - 1) / most + 1);
}

MemoryReport Stepper::memory_report(bool by_factor) const {
  MemoryReport report;
  report.budget = budget_;
  std::vector<Together> together;
  std::vector<Kind> families;
  for (const Slot& slot : slots_) {
    const Kind kind = kind_of(slot);
    const int64_t n = slot.param.numel();
    report.parameters += slot.param.nbytes();
    if (const Tensor grad = slot.param.grad(); grad.defined()) report.gradients += grad.nbytes();
    for (const Tensor& copy : {slot.dense_param, slot.ordered_grad})
      if (copy.defined()) report.copies += copy.nbytes();
    for (int k = 0; k < kind.arrays(); ++k) {
      MemoryReport::Placed& placed = k < kind.rule->states ? report.states : report.masters;
      const Placement placement = kind.device.is_cpu() ? Placement::device : kind.memory.placement;
      (placement == Placement::pinned    ? placed.pinned
       : placement == Placement::managed ? placed.managed
                                         : placed.device) +=
          kind.array_dtype(k) == kU8 ? formula::quant_bytes(n) : n * size_of(kind.array_dtype(k));
    }
    if (std::ranges::find(families, kind) == families.end()) families.push_back(kind);
    auto found = std::ranges::find_if(together, [&](const Together& x) {
      return x.kind == kind && x.group == slot.group && x.hyper_block == slot.hyper_block;
    });
    if (found == together.end())
      found = together.insert(together.end(), {kind, slot.group, slot.hyper_block, grad_dtype_of(kind)});
    ++found->tensors;
    found->elements += n;
    found->largest = std::max(found->largest, n);
  }
  for (const Family& family : families_)
    if (family.streamed) report.chunks += family.streamed->device_bytes();
  for (MemoryReport::Step& step : report.steps) {
    step.calls = static_cast<int64_t>(families.size());  // the hyper blocks' advances; of fused steps all there is
    if (step.execution == Execution::fused && strategy_ == Strategy::per_tensor)
      step.calls = static_cast<int64_t>(slots_.size());
    for (const Together& x : together) add_eager_step(step, x, by_factor);
  }
  return report;
}

}  // namespace lorry::optim
