// The executions loop and foreach of a family: one EagerStep a hyper block.

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "lorry/memory/meta_allocator.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/optim/stepper.h"

namespace lorry::optim {

DType Stepper::grad_dtype_of(const Kind& kind) const {
  for (const Slot& slot : slots_)
    if (const Tensor grad = slot.param.grad(); grad.defined() && kind_of(slot) == kind) return grad.dtype();
  return kind.dtype;
}

StepShape Stepper::shape_of(const Kind& kind, DType grad_dtype, Execution execution, bool by_factor) const {
  StepShape shape{.execution = execution,
                  .dtype = kind.dtype,
                  .grad_dtype = grad_dtype,
                  .memory = kind.memory,
                  .by_factor = by_factor,
                  .in_parts = budget_ > 0};
  if (memory::stood_for(kind.device).is_cpu()) shape.memory.placement = Placement::device;
  return shape;
}

Program Stepper::program_of(const Kind& kind, const GroupState& group, const StepShape& shape) const {
  std::vector<int> in_tensors;
  for (const SettingTensor& x : group.tensors) in_tensors.push_back(x.setting);
  return make_program([&](kernels::recording::Symbol* values) { group.rule->record(in_tensors, values); },
                      kind.rule->states, shape);
}

void Stepper::set_memory_budget(int64_t bytes) {
  const Running running(where_);
  require<ValueError>(bytes >= 0, "memory_budget is out of range; got {}; expected bytes, or 0 for no bound", bytes);
  const int64_t before = std::exchange(budget_, bytes);
  try {
    require_budget();
  } catch (...) {
    budget_ = before;
    throw;
  }
  for (Family& family : families_) family.eager.reset();
}

int64_t Stepper::needed_budget() const {
  int64_t needed = 0;
  std::vector<std::pair<Kind, int>> seen;
  for (const Slot& slot : slots_) {
    const std::pair<Kind, int> own{kind_of(slot), slot.group};
    if (std::ranges::find(seen, own) != seen.end()) continue;
    seen.push_back(own);
    const DType grad_dtype = grad_dtype_of(own.first);
    for (const bool by_factor : {false, true}) {  // every step finds room, whether it clips or not
      const StepShape shape = shape_of(own.first, grad_dtype, execution_, by_factor);
      needed = std::max(needed, least_budget(program_of(own.first, groups_[slot.group], shape).bytes_per_element()));
    }
  }
  return needed;
}

void Stepper::require_budget() const {
  const Running running(where_);
  if (budget_ == 0 || !steps_eagerly()) return;
  const int64_t needed = needed_budget();
  require<ValueError>(budget_ >= needed,
                      "memory_budget is too small for 256 elements at a time; got {} bytes; expected at least {}",
                      budget_, needed);
}

void Stepper::plan_eager(Family& family, bool by_factor, bool zero_grads) const {
  std::optional<EagerPlan>& known = family.eager;
  const StepShape shape = shape_of(family, family.grad_dtype, execution_, by_factor);
  const auto program = [&](int group) { return program_of(family, groups_[static_cast<size_t>(group)], shape); };
  if (known && known->by_factor == by_factor && known->zero_grads == zero_grads) {
    if (!known->settings_changed) return;
    bool same = true;
    for (size_t i = 0; i < known->steps.size(); ++i)
      same = same && known->steps[i].program() == program(known->groups[i]);
    known->settings_changed = false;
    if (same) return;
  }
  known.reset();
  EagerPlan made{.by_factor = by_factor, .zero_grads = zero_grads};
  std::map<int, std::vector<SteppedParameter>> by_hyper_block;
  for (const int s : family.slots) {
    const Slot& slot = slots_[static_cast<size_t>(s)];
    by_hyper_block[slot.hyper_block].push_back(
        {&list(family).entries()[static_cast<size_t>(slot.entry)], slot.states, static_cast<uint32_t>(s)});
  }
  for (auto& [hyper_block, parameters] : by_hyper_block) {
    made.groups.push_back(family.block_groups[static_cast<size_t>(hyper_block)]);
    made.steps.push_back(
        eager_step(family, hyper_block, program(made.groups.back()), std::move(parameters), zero_grads));
  }
  known = std::move(made);
}

EagerStep Stepper::eager_step(const Family& family, int hyper_block, Program program,
                              std::vector<SteppedParameter> parameters, bool zero_grads) const {
  EagerWork work{.program = std::move(program),
                 .is_foreach = execution_ != Execution::loop,
                 .where = where_,
                 .device = family.device,
                 .dtype = family.dtype,
                 .grad_dtype = family.grad_dtype,
                 .states = family.rule->states,
                 .state_dtypes = {},
                 .hyper = static_cast<const char*>(family.blocks->numbers(hyper_block)),
                 .settings = {},
                 .zero_grads = zero_grads,
                 .compression = family.compression()};
  for (int k = 0; k < family.arrays(); ++k) work.state_dtypes[k] = family.array_dtype(k);
  for (int k = 0; k < family.rule->settings; ++k) work.settings.push_back(family.blocks->setting(hyper_block, k));
  work.compression.steps = family.blocks->steps(hyper_block);
  return EagerStep(work, std::move(parameters), budget_);
}

std::vector<EagerMemory> Stepper::prepare_eager() {
  std::vector<EagerMemory> memory;
  std::vector<Device> devices;
  for (const Family& first : families_) {
    if (!first.eager || std::ranges::find(devices, first.device) != devices.end()) continue;
    int64_t bytes = 0;
    for (const Family& family : families_)
      if (family.eager && family.device == first.device)
        for (const EagerStep& step : family.eager->steps) bytes = std::max(bytes, step.bytes());
    devices.push_back(first.device);
    memory.push_back({empty({kNumberBytes}, {kU8, first.device}), empty({bytes}, {kU8, first.device})});
    for (Family& family : families_)
      if (family.eager && family.device == first.device)
        for (EagerStep& step : family.eager->steps) step.prepare(memory.back());
  }
  return memory;
}

void Stepper::run_eager(Family& family, const Tensor& grad_factor) {
  const double* const factor = doubles(grad_factor);
  const Stream stream = current_stream(family.device);
  for (EagerStep& step : family.eager->steps) step.run(factor, stream);
  family.blocks->advance(factor, stream);
}

}  // namespace lorry::optim
