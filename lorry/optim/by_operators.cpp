// The executions loop and foreach: whole parameters at a time, or as many of their elements as a budget of memory lets.

#include "lorry/device/device.h"
#include "lorry/formula/quantize.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/door.h"
#include "lorry/optim/optimizer.h"
#include "lorry/optim/stored.h"

namespace lorry::optim {

/// Some elements of a parameter, in the order of its memory, from a multiple of 256 on.
struct Optimizer::Part {
  int slot;
  int64_t first, count;
  bool whole;

  Tensor of(const Tensor& x) const { return whole ? x : door::make_view(x, Layout::contiguous({count}), x.storage_offset() + first); }
};

namespace {

constexpr int64_t kUnit = formula::kQuantBlock;

/// Between a device's memory and the same or the host's, without waiting.
void copy_bytes(const Tensor& to, const Tensor& from, Device device) {
  const Stream stream = current_stream(device);
  device::copy(to.data_ptr(), to.device(), from.data_ptr(), from.device(), from.nbytes(), stream);
  for (const Tensor& x : {to, from})
    if (x.device() != device) x.record_stream(stream);
}

}  // namespace

// ---- budgets ---------------------------------------------------------------------------------------------------------

StepShape Optimizer::shape_of(const Kind& kind, Execution execution, bool by_factor, bool zero_grads) const {
  StepShape shape{.execution = execution, .dtype = kind.dtype, .memory = kind.memory, .by_factor = by_factor, .zero_grads = zero_grads, .in_parts = budget_ > 0};
  if (kind.device.is_cpu()) shape.memory.placement = Placement::device;
  return shape;
}

void Optimizer::set_memory_budget(int64_t bytes) {
  require<ValueError>(bytes >= 0, "{}: memory_budget is out of range; got {}; expected bytes, or 0 for no bound", where_, bytes);
  const int64_t before = std::exchange(budget_, bytes);
  try {
    require_budget();
  } catch (...) {
    budget_ = before;
    throw;
  }
}

void Optimizer::require_budget() const {
  if (budget_ == 0 || execution_ == Execution::fused) return;
  int64_t needed = 0;
  for (const Slot& slot : slots_)  // as a step that clips takes it, so that every step finds room
    needed = std::max(needed, kUnit * groups_[slot.group].rule->intermediates(shape_of(kind_of(slot), execution_, true, false), groups_[slot.group].settings).bytes);
  require<ValueError>(budget_ >= needed, "{}: memory_budget is too small for {} elements at a time; got {} bytes; expected at least {}", where_, kUnit, budget_, needed);
}

int64_t Optimizer::at_a_time(const Kind& kind, const GroupState& group, const StepShape& shape) const {
  const int64_t bytes = kind.rule->intermediates(shape, group.settings).bytes;
  return budget_ == 0 || bytes == 0 ? INT64_MAX : budget_ / bytes / kUnit * kUnit;
}

// ---- parts -------------------------------------------------------------------------------------------------------------

Tensor Optimizer::part_here(const Family& family, int k, const Part& part) const {
  const Slot& slot = slots_[static_cast<size_t>(part.slot)];
  const Tensor& state = slot.states[k];
  if (part.whole || family.stored(k) != kU8) return family.here(part.of(state));
  const Tensor own = empty({formula::quant_bytes(part.count)}, {kU8, family.device});  // codes and scales of a part lie apart
  for (const auto& [to, from] : pieces(own, state, slot.param.numel(), part)) copy_bytes(to, from, family.device);
  return own;
}

void Optimizer::take_part_home(const Family& family, int k, const Part& part, const Tensor& from) const {
  const Slot& slot = slots_[static_cast<size_t>(part.slot)];
  if (part.whole || family.stored(k) != kU8) return family.take_home(part.of(slot.states[k]), from);
  for (const auto& [own, whole] : pieces(from, slot.states[k], slot.param.numel(), part)) copy_bytes(whole, own, family.device);
}

std::array<std::pair<Tensor, Tensor>, 2> Optimizer::pieces(const Tensor& own, const Tensor& state, int64_t n, const Part& part) {
  return {{{codes_of(own, part.count), codes_of(state, n).narrow(0, part.first, part.count)},
           {scales_of(own, part.count), scales_of(state, n).narrow(0, part.first / kUnit, formula::quant_blocks(part.count))}}};
}

// ---- steps -------------------------------------------------------------------------------------------------------------

/// Steps parts of parameters that share a clock: a loop one, a foreach several.
void Optimizer::step_parts(Family& family, std::span<const Part> parts, const Tensor& grad_factor, bool zero_grads) {
  const Slot& first = slots_[static_cast<size_t>(parts[0].slot)];
  const void* const settings = groups_[first.group].settings;
  const Tensor all_numbers = family.clocks.view(family.f64() ? kF64 : kF32);
  const size_t clock_at = static_cast<size_t>(first.clock) * family.clock_bytes();
  const auto numbers_at = static_cast<int64_t>((clock_at + family.rule->hyper_at[family.f64()]) / (family.f64() ? 8 : 4));
  const Tensor numbers = all_numbers.narrow(0, numbers_at, all_numbers.numel() - numbers_at);
  Storing storing = family.storing();
  storing.steps = reinterpret_cast<const double*>(static_cast<const char*>(family.clocks.data_ptr()) + clock_at + family.rule->coming_at[family.f64()]);
  storing.first_element = parts[0].first;  // the others begin where their parameters do
  const auto slot = [&](const Part& part) -> const Slot& { return slots_[static_cast<size_t>(part.slot)]; };
  const auto param = [&](const Part& part) { return part.of(slot(part).own_param.defined() ? slot(part).own_param : slot(part).param.detach()); };
  const auto grad = [&](const Part& part) { return part.of(slot(part).own_grad.defined() ? slot(part).own_grad : slot(part).param.grad().detach()); };
  const int states = family.rule->states, arrays = family.arrays();
  if (execution_ == Execution::loop) {
    const Part& part = parts[0];
    Tensor here[kMaxStates + 1];
    for (int k = 0; k < arrays; ++k) here[k] = part_here(family, k, part);
    family.rule->by_operators({.param = param(part),
                               .grad = grad(part),
                               .kept = here[states],
                               .states = here,
                               .numbers = numbers,
                               .grad_factor = grad_factor,
                               .kept_as = family.kept(),
                               .zero_grads = zero_grads,
                               .storing = storing,
                               .number = static_cast<uint32_t>(part.slot)},
                              settings);
    for (int k = 0; k < arrays; ++k) take_part_home(family, k, part, here[k]);
    return;
  }
  const auto listed = [&](const auto& of) {
    std::vector<Tensor> tensors;
    for (const Part& part : parts) tensors.push_back(of(part));
    return foreach::TensorList(std::move(tensors));
  };
  foreach::TensorList here[kMaxStates + 1];
  for (int k = 0; k <= states; ++k) here[k] = listed([&](const Part& part) { return k < arrays ? part_here(family, k, part) : Tensor(); });
  ByLists work;
  work.param = listed(param);
  work.grad = listed(grad);
  work.kept = here[states];
  std::copy(here, here + states, work.states);
  work.numbers = numbers;
  work.grad_factor = grad_factor;
  work.kept_as = family.kept();
  work.zero_grads = zero_grads;
  work.storing = storing;
  for (const Part& part : parts) work.number.push_back(static_cast<uint32_t>(part.slot));
  family.rule->by_lists(work, settings);
  for (int k = 0; k < arrays; ++k)
    for (size_t i = 0; i < parts.size(); ++i) take_part_home(family, k, parts[i], here[k][i]);
}

/// States elsewhere are copied to the device and back: for a loop, one parameter's at a time.
void Optimizer::run_by_operators(Family& family, const Tensor& grad_factor, bool zero_grads) {
  const StepShape shape = shape_of(family, execution_, grad_factor.defined(), zero_grads);
  std::map<int, std::vector<int>> by_clock;
  for (const int s : family.slots) by_clock[slots_[s].clock].push_back(s);
  for (const auto& entry : by_clock) {
    const std::vector<int>& members = entry.second;
    const int64_t most = at_a_time(family, groups_[slots_[members[0]].group], shape);
    std::vector<Part> parts;
    int64_t room = most;
    const auto step_them = [&] {
      if (!parts.empty()) step_parts(family, parts, grad_factor, zero_grads);
      parts.clear();
      room = most;
    };
    for (const int s : members) {
      const int64_t n = slots_[s].param.numel();
      for (int64_t first = 0; first < n || first == 0;) {
        if (execution_ == Execution::loop || (n - first > room && room < kUnit)) step_them();
        const int64_t count = std::min(n - first, n - first > room ? room / kUnit * kUnit : room);
        parts.push_back({s, first, count, count == n});
        room -= count;
        first += std::max<int64_t>(count, 1);
      }
    }
    step_them();
  }
  family.rule->kernels(family.device, where_)
      .tick(family.clocks.data_ptr(), family.f64(), 0, static_cast<int32_t>(family.clock_groups.size()), grad_factor.defined() ? grad_factor.data<double>() : nullptr,
            current_stream(family.device));
}

}  // namespace lorry::optim
