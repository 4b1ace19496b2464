#include "lorry/optim/execution/eager_family.h"

#include <algorithm>
#include <map>

#include "lorry/memory/meta_allocator.h"
#include "lorry/optim/execution/foreach.h"
#include "lorry/optim/execution/loop.h"

namespace lorry::optim {

StepShape shape_of(const FamilyKind& kind, DType grad_dtype, Execution execution, bool by_factor, bool in_parts) {
  StepShape shape{.execution = execution,
                  .dtype = kind.dtype,
                  .grad_dtype = grad_dtype,
                  .memory = kind.memory,
                  .by_factor = by_factor,
                  .in_parts = in_parts};
  if (memory::represented_device(kind.device).is_cpu()) shape.memory.placement = Placement::device;
  return shape;
}

Program program_of(const FamilyKind& kind, const GroupState& group, const StepShape& shape) {
  std::vector<int> in_tensors;
  for (const SettingTensor& x : group.tensors) in_tensors.push_back(x.setting);
  return make_program([&](kernels::recording::Symbol* values) { group.rule->record(in_tensors, values); },
                      kind.rule->states, shape);
}

namespace {

std::unique_ptr<EagerStep> new_step(const Family& family, const StepContext& context, int hyper_block, Program program,
                                    const std::vector<SteppedParameter>& parameters, bool zero_grads) {
  EagerWork work{.program = std::move(program),
                 .where = context.where,
                 .device = family.device,
                 .dtype = family.dtype,
                 .grad_dtype = family.grad_dtype,
                 .states = family.rule->states,
                 .state_dtypes = {},
                 .hyper = family.blocks->numbers(hyper_block),
                 .settings = {},
                 .zero_grads = zero_grads,
                 .compression = family.compression()};
  for (int k = 0; k < family.arrays(); ++k) work.state_dtypes[k] = family.array_dtype(k);
  for (int k = 0; k < family.rule->settings; ++k) work.settings.push_back(family.blocks->setting(hyper_block, k));
  work.compression.steps = family.blocks->steps(hyper_block);
  if (context.execution == Execution::loop) return std::make_unique<LoopStep>(work, parameters, context.budget);
  return std::make_unique<ForeachStep>(work, parameters, context.budget);
}

}  // namespace

void EagerFamily::prepare(const Family& family, const StepContext& context, const kernels::StepCall& call,
                          const Stream&) {
  const bool by_factor = call.grad_factor != nullptr;
  const StepShape shape = shape_of(family, family.grad_dtype, context.execution, by_factor, context.budget > 0);
  const auto program = [&](int group) { return program_of(family, context.groups[static_cast<size_t>(group)], shape); };
  if (is_made_ && by_factor_ == by_factor && zero_grads_ == call.zero_grads) {
    if (!settings_changed_) return;
    const bool same = std::ranges::all_of(
        steps_, [&](const BlockStep& known) { return known.step->program() == program(known.group); });
    settings_changed_ = false;
    if (same) return;
  }
  is_made_ = false;
  steps_.clear();
  std::map<int, std::vector<SteppedParameter>> by_hyper_block;
  for (const int s : family.slots) {
    const Slot& slot = context.slots[static_cast<size_t>(s)];
    const kernels::ListEntry& entry = call.list.entries()[static_cast<size_t>(slot.entry)];
    auto& own = by_hyper_block[slot.hyper_block];
    if (entry.count > 0) own.push_back({&entry, slot.states, static_cast<uint32_t>(s)});
  }
  for (const auto& [hyper_block, parameters] : by_hyper_block) {
    const int group = family.block_groups[static_cast<size_t>(hyper_block)];
    steps_.push_back({new_step(family, context, hyper_block, program(group), parameters, call.zero_grads), group});
  }
  by_factor_ = by_factor, zero_grads_ = call.zero_grads;
  is_made_ = true;
  settings_changed_ = false;
}

std::optional<int64_t> EagerFamily::buffer_bytes() const {
  int64_t bytes = 0;
  for (const BlockStep& x : steps_) bytes = std::max(bytes, x.step->buffer_bytes());
  return bytes;
}

void EagerFamily::take_buffers(const StepBuffers& buffers) {
  for (const BlockStep& x : steps_) x.step->prepare(buffers);
}

void EagerFamily::run(const Family& family, const kernels::StepCall& call, const Stream& stream) {
  for (const BlockStep& x : steps_) x.step->run(call.grad_factor, stream);
  family.blocks->advance(call.grad_factor, stream);
}

}  // namespace lorry::optim
