// How an optimizer makes a step: it looks at its gradients when one may have changed, lays out lists, and runs a rule
// over them.

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/events.h"
#include "lorry/device/device.h"
#include "lorry/kernels/list.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/optim/separate.h"
#include "lorry/optim/stepper.h"
#include "lorry/tensor/changes.h"

namespace lorry::optim {
namespace {

/// True when equal offsets in both tensors hold the same element: equal sizes, and equal strides where they matter.
bool same_order(const Layout& a, const Layout& b) {
  for (int i = 0; i < a.rank; ++i)
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

/// True when no other gradient, of whatever parameter, lies in the storage of this one.
bool alone(const Tensor& grad) { return grad.storage().gradients() == 1 && !grad.storage().foreign(); }

/// True for a gradient that door::require_writable may refuse.
bool guarded(const Tensor& grad) {
  return grad.storage().read_only() || grad.is_inference() ||
         (!grad.is_contiguous() && grad.layout().has_internal_overlap());
}

}  // namespace

void Stepper::step() { step(Tensor()); }

void Stepper::step(const Tensor& grad_factor) {
  const Running running(where_);
  const NoGrad quiet;
  require_parameters();
  refresh();
  copy_in();
  if (grad_factor.defined()) {
    require<ShapeError>(grad_factor.dim() == 0, "grad_factor has a shape; got {}; expected a 0-d f64", grad_factor);
    require<DTypeError>(grad_factor.dtype() == kF64, "grad_factor has another dtype; got {}; expected a 0-d f64",
                        grad_factor);
    for (const Family& family : families_)
      if (!family.slots.empty()) require_same_device(slots_[family.slots[0]].param, grad_factor);
  }
  run(grad_factor, false);
}

Tensor Stepper::step(const StepOptions& options) {
  const Running running(where_);
  const NoGrad quiet;
  require<ValueError>(options.max_norm >= 0, "max_norm is out of range; got {}; expected a number >= 0",
                      options.max_norm);
  require_parameters();
  refresh();
  if (options.zero_grad) require_separate_gradients();
  copy_in();
  Tensor total, factor;
  if (std::isfinite(options.max_norm) || options.skip_nonfinite || options.scale.defined()) {
    std::vector<const kernels::List*> lists;
    const Tensor* first = nullptr;
    for (const Family& family : families_) {
      if (family.slots.empty()) continue;
      const Tensor& param = slots_[family.slots[0]].param;
      if (first == nullptr) first = &param;
      require_same_device(*first, param);
      lists.push_back(family.grads.get());
    }
    const Device device = first ? first->device() : default_device();
    if (const Tensor& scale = options.scale; scale.defined()) {
      require<DTypeError>(scale.dim() == 0 && scale.dtype() == kF64,
                          "scale is of another kind; got {}; expected a 0-d f64", scale);
      require<DeviceError>(scale.device() == device,
                           "scale is on another device than the parameters; got {}; expected {}", scale, device);
    }
    total = empty({}, {.dtype = kF64, .device = device});
    factor = empty({}, {.dtype = kF64, .device = device});
    kernels::backend(device).list_norm->norm(
        {.lists = lists,
         .total = total.data<double>(),
         .end = {.max_norm = options.max_norm,
                 .scale = options.scale.defined() ? options.scale.data<double>() : nullptr,
                 .skip_nonfinite = options.skip_nonfinite,
                 .factor = factor.data<double>()}},
        current_stream(device));
  }
  run(factor, options.zero_grad);
  return total;
}

// ---- before the step ------------------------------------------------------------------------------------------------

void Stepper::check(Slot& slot, const Tensor& grad) const {
  const Running running(where_);
  const Tensor& param = slot.param;
  require<ShapeError>(grad.sizes() == param.sizes(),
                      "the gradient of '{}' has another shape; got gradient: {}, parameter: {}", slot.name, grad,
                      param);
  require<DTypeError>(grad.dtype() == param.dtype() || (grad.dtype() == kF32 && size_of(param.dtype()) == 2),
                      "the gradient of '{}' has another dtype; got gradient: {}, parameter: {}; expected the "
                      "parameter's, or f32 for one of 16 bits",
                      slot.name, grad, param);
  require<DeviceError>(grad.device() == param.device(),
                       "the gradient of '{}' is on another device; got gradient: {}, parameter: {}", slot.name, grad,
                       param);
  door::require_writable(param);
  if (slot.family < 0) return require_memory_fits(slot.name, param, groups_[slot.group]);
  const Family& family = families_[slot.family];
  const bool fits = family.device == param.device() && family.dtype == param.dtype() &&
                    (family.arrays() == 0 || slot.layout.size_list() == param.sizes());
  if (fits) return;  // what follows makes strings, and every gradient that moves comes here
  raise<ShapeError>("parameter '{}' has changed since its last step; got {} with a state of {}; make a new optimizer",
                    slot.name, param,
                    family.arrays() == 0
                        ? fmt::format("{} {}", family.dtype, family.device)
                        : fmt::format("{} {} {}", slot.layout.size_list(), family.array_dtype(0), family.device));
}

void Stepper::refresh() {
  const uint64_t now = changes();
  if (seen_ == now) return;
  const uint64_t since = std::exchange(seen_, 0);  // for the case that this throws
  if (since == 0 || last_reshaped() > since || !update_addresses(since)) lay_out();
  seen_ = now;
}

/// Takes over gradients that were replaced since. False when more than their addresses has changed.
bool Stepper::update_addresses(uint64_t since) {
  if (!copied_.empty() || !shared_grad_storages_.empty() || !guarded_.empty()) return false;
  for (Slot& slot : slots_) {
    if (slot.gradient->changed() <= since) continue;
    const Tensor grad = slot.gradient->grad();
    if (grad.defined() != (slot.entry >= 0)) return false;
    if (!grad.defined()) continue;
    check(slot, grad);
    if (!same_order(slot.param.layout(), grad.layout()) || guarded(grad)) return false;
    Family& family = families_[slot.family];
    if (grad.dtype() != family.grad_dtype) return false;
    family.list->move(slot.entry, 1, grad.data_ptr());
    family.grads->move(slot.entry, 0, grad.data_ptr());
    if (!grad.storage().join(grad_epoch_)) return false;
    separate_ = separate_ && alone(grad);
  }
  return true;
}

void Stepper::require_separate_gradients() {
  const Running running(where_);
  if (separate_) return;
  std::vector<Tensor> grads;
  for (const Slot& slot : slots_) grads.push_back(slot.entry < 0 ? Tensor() : slot.param.grad());
  if (const auto clash = find_clash(grads))
    raise<ValueError>(
        "the gradients of '{}' and '{}' {}share memory; got zero_grad, which writes them; expected a gradient of its "
        "own for each parameter",
        slots_[clash->first].name, slots_[clash->second].name, clash->certain ? "" : "may ");
  separate_ = true;
}

void Stepper::lay_out() {
  const Running running(where_);
  std::vector<Tensor> grads(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    grads[s] = slots_[s].param.grad();
    if (grads[s].defined()) check(slots_[s], grads[s]);
  }
  require_budget();

  // What is made is made aside: when memory runs out, nothing has changed but hyper blocks that nobody has yet.
  struct New {
    Tensor param, grad, states[kMaxStates + 1], param_source, grad_source;
    int family = -1, hyper_block = -1;
  };
  std::vector<New> made(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!grads[s].defined()) continue;
    const Slot& slot = slots_[s];
    New& own = made[s];
    own.param_source = own.param = slot.param.detach();
    if (!own.param.layout().is_dense()) {
      events::emit(events::Kind::hidden_copy, where_, "a parameter that is not dense is stepped in a copy");
      own.param = own.param.clone().contiguous();
    }
    own.grad_source = own.grad = grads[s].detach();
    if (!same_order(own.param.layout(), own.grad.layout())) {
      events::emit(events::Kind::hidden_copy, where_, "a gradient is copied into the layout of its parameter");
      own.grad = empty_like(own.param, own.grad.dtype());
    }
    const Kind kind = kind_of(slot);
    for (int k = 0; k < kind.arrays(); ++k) {
      if (!slot.states[k].defined())
        own.states[k] = new_state(slot, kind, own.param, k);
      else
        own.states[k] =
            same_order(slot.layout, own.param.layout()) ? slot.states[k] : reordered(slot, kind, own.param, k);
    }
  }

  // Hyper blocks: parameters of a group and family that are new here share one, and one whose parameters part ways is copied.
  struct Fresh {
    int family, group, hyper_block;
  };
  std::vector<Fresh> fresh;
  std::vector<std::vector<int>> members(families_.size()), stepping(families_.size());
  for (size_t f = 0; f < families_.size(); ++f)
    members[f] = stepping[f] = std::vector<int>(families_[f].block_groups.size());
  for (size_t s = 0; s < slots_.size(); ++s)
    if (const Slot& slot = slots_[s]; slot.family >= 0) {
      ++members[slot.family][slot.hyper_block];
      stepping[slot.family][slot.hyper_block] += grads[s].defined();
    }
  std::vector<std::vector<int>> copies(families_.size());
  for (size_t f = 0; f < families_.size(); ++f) copies[f].assign(families_[f].block_groups.size(), -1);
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!grads[s].defined()) continue;
    const Slot& slot = slots_[s];
    New& own = made[s];
    own.family = slot.family, own.hyper_block = slot.hyper_block;
    if (slot.family >= 0) {
      if (stepping[slot.family][slot.hyper_block] == members[slot.family][slot.hyper_block]) continue;
      int& copy = copies[slot.family][slot.hyper_block];
      if (copy < 0) copy = new_hyper_block(families_[slot.family], slot.group, slot.hyper_block);
      own.hyper_block = copy;
      continue;
    }
    own.family = family_of(slot);
    const auto known =
        std::ranges::find_if(fresh, [&](const Fresh& x) { return x.family == own.family && x.group == slot.group; });
    own.hyper_block =
        known != fresh.end()
            ? known->hyper_block
            : fresh.emplace_back(Fresh{own.family, slot.group, new_hyper_block(families_[own.family], slot.group, -1)})
                  .hyper_block;
  }

  struct Lists {
    std::unique_ptr<kernels::List> list, grads;
    std::vector<int> slots;
    std::optional<DType> grad_dtype;
  };
  std::vector<Lists> lists(families_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (made[s].family < 0) continue;
    std::optional<DType>& all = lists[made[s].family].grad_dtype;
    if (!all) all = grads[s].dtype();
    require<DTypeError>(*all == grads[s].dtype(),
                        "the gradient of '{}' has another dtype than that of a parameter that is stepped with it; "
                        "got {}; expected {} for all",
                        slots_[s].name, grads[s].dtype(), *all);
  }
  for (size_t f = 0; f < families_.size(); ++f) {
    const Family& family = families_[f];
    const DType grad_dtype = lists[f].grad_dtype.value_or(family.dtype);
    std::vector<DType> dtypes{family.dtype, grad_dtype};
    for (int k = 0; k < family.rule->states; ++k) dtypes.push_back(family.array_dtype(k));
    // Lists of 16-bit parameters carry an array of masters, null where there are none.
    if (size_of(family.dtype) == 2) dtypes.push_back(family.array_dtype(family.rule->states));
    lists[f].list = std::make_unique<kernels::List>(family.device, dtypes, strategy_);
    lists[f].grads = std::make_unique<kernels::List>(family.device, std::span(&grad_dtype, 1), strategy_);
  }
  for (size_t s = 0; s < slots_.size(); ++s) {
    const New& own = made[s];
    if (own.family < 0) continue;
    kernels::ListEntry entry{.at = {own.param.data_ptr(), own.grad.data_ptr()},
                             .count = own.param.numel(),
                             .word = static_cast<uint32_t>(own.hyper_block),
                             .number = static_cast<uint32_t>(s)};
    for (int k = 0; k < kMaxStates + 1 && own.states[k].defined(); ++k) entry.at[2 + k] = own.states[k].data_ptr();
    lists[own.family].list->add(entry);
    lists[own.family].grads->add({.at = {own.grad.data_ptr()}, .count = entry.count, .word = 0});
    lists[own.family].slots.push_back(static_cast<int>(s));
  }

  // From here on nothing fails.
  for (size_t f = 0; f < families_.size(); ++f) {
    families_[f].streamed.reset();
    families_[f].eager.reset();
    families_[f].list = std::move(lists[f].list);
    families_[f].grads = std::move(lists[f].grads);
    families_[f].slots = std::move(lists[f].slots);
    families_[f].grad_dtype = lists[f].grad_dtype.value_or(families_[f].dtype);
  }
  std::vector<int> entries(families_.size());
  copied_.clear();
  shared_storages_.clear();
  shared_grad_storages_.clear();
  guarded_.clear();
  separate_ = false;
  // A parameter that is not stepped must not count our writes, unless it shares its storage with one that is.
  for (size_t s = 0; s < slots_.size(); ++s)
    if (Storage& storage = slots_[s].param.storage(); made[s].family < 0 && storage.has_joined(*epoch_))
      storage.leave();
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    New& own = made[s];
    slot.entry = own.family < 0 ? -1 : entries[own.family]++;
    slot.dense_param = slot.ordered_grad = Tensor();
    if (own.family < 0) continue;
    slot.family = own.family, slot.hyper_block = own.hyper_block;
    slot.layout = own.param.layout();
    std::ranges::move(own.states, slot.states);
    slot.param_source = slot.grad_source = Tensor();
    if (own.param.data_ptr() != slot.param.data_ptr())
      slot.dense_param = own.param, slot.param_source = own.param_source;
    if (own.grad.data_ptr() != grads[s].data_ptr()) slot.ordered_grad = own.grad, slot.grad_source = own.grad_source;
    if (slot.dense_param.defined() || slot.ordered_grad.defined()) copied_.push_back(static_cast<int>(s));
    if (!slot.param.storage().join(epoch_)) shared_storages_.push_back(&slot.param.storage());
    if (!grads[s].storage().join(grad_epoch_)) shared_grad_storages_.push_back(&grads[s].storage());
    if (guarded(grads[s])) guarded_.push_back(static_cast<int>(s));
  }
  for (Family& family : families_)
    if (!family.block_groups.empty()) write_hyper_blocks(family, -1);
  for (const Family& family : families_)
    if (execution_ == Execution::fused && !family.slots.empty() && steps_eagerly(family))
      events::emit(events::Kind::warning, where_,
                   "there are no fused kernels for f32 gradients of 16-bit parameters on a GPU: the step runs as by "
                   "foreach, in buffers of bounded size");
}

// ---- the step -------------------------------------------------------------------------------------------------------

/// Fills the aligned copies: before anything reads the lists.
void Stepper::copy_in() {
  for (const int s : copied_) {
    const Slot& slot = slots_[s];
    if (slot.dense_param.defined()) slot.dense_param.copy_(slot.param_source);
    if (slot.ordered_grad.defined()) slot.ordered_grad.copy_(slot.grad_source);
  }
}

void Stepper::run(const Tensor& grad_factor, bool zero_grads) {
  const Running running(where_);
  for (const Family& family : families_)
    if (!family.slots.empty()) device::throw_reported(family.device);
  if (zero_grads)
    for (const int s : guarded_) door::require_writable(slots_[s].param.grad());

  // What is needed is taken before anything is written.
  for (Family& family : families_) {
    if (family.slots.empty()) continue;
    if (steps_eagerly(family)) {
      plan_eager(family, grad_factor.defined(), zero_grads);
      continue;
    }
    const kernels::StepCall call = call_of(family, grad_factor, zero_grads);
    if (family.streams())
      prepare_streamed(family, call);
    else if (const auto prepare = family.rule->kernels(family.device).prepare)
      prepare(call, current_stream(family.device));
  }
  const std::vector<EagerMemory> memory = prepare_eager();

  // Versions count a step that fails half way too. From here on it is made: what other kernels report does not stop it.
  epoch_->written_by(where_);
  for (Storage* const storage : shared_storages_) storage->written_by(where_);
  if (zero_grads) {
    grad_epoch_->written_by(where_);
    for (Storage* const storage : shared_grad_storages_) storage->written_by(where_);
  }
  const device::ReportsWait scope;
  for (size_t f = 0; f < families_.size(); ++f) {
    if (families_[f].slots.empty()) continue;
    Family& family = families_[f];
    if (steps_eagerly(family))
      run_eager(family, grad_factor);
    else if (const kernels::StepCall call = call_of(family, grad_factor, zero_grads); family.streams())
      run_streamed(family, call);
    else
      family.rule->kernels(family.device).step(call, current_stream(family.device));
    for (const int s : copied_) {
      const Slot& slot = slots_[s];
      if (slot.family != static_cast<int>(f)) continue;
      if (slot.dense_param.defined()) {
        slot.param_source.copy_(slot.dense_param);
        slot.param.storage().written_by(where_);
      }
      if (slot.ordered_grad.defined() && zero_grads) slot.grad_source.zero_();
    }
  }
}

kernels::StepCall Stepper::call_of(const Family& family, const Tensor& grad_factor, bool zero_grads) const {
  return {.list = *family.list,
          .hyper_blocks = family.hyper_blocks.data_ptr(),
          .first_hyper_block = 0,
          .hyper_block_count = static_cast<int32_t>(family.block_groups.size()),
          .masters = family.master_kind(),
          .zero_grads = zero_grads,
          .grad_factor = grad_factor.defined() ? grad_factor.data<double>() : nullptr,
          .seed = family.memory.seed};
}

// ---- the executions loop and foreach --------------------------------------------------------------------------------

bool Stepper::steps_eagerly(Execution execution, const Kind& kind, DType grad_dtype) {
  return execution != Execution::fused || (grad_dtype != kind.dtype && !kind.device.is_cpu());
}

int64_t Stepper::budget_of(Execution execution) const {
  constexpr int64_t kOfFusedSteps = 64 << 20;
  return budget_ == 0 && execution == Execution::fused ? kOfFusedSteps : budget_;
}

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
                  .in_parts = budget_of(execution) > 0};
  if (kind.device.is_cpu()) shape.memory.placement = Placement::device;
  return shape;
}

Program Stepper::program_of(const Kind& kind, const GroupState& group, const StepShape& shape) const {
  return make_program(kind.rule->record, kind.rule->states, group.settings, shape);
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

void Stepper::require_budget() const {
  const Running running(where_);
  if (budget_ == 0) return;
  int64_t needed = 0;
  std::vector<std::pair<Kind, int>> seen;
  for (const Slot& slot : slots_) {
    const std::pair<Kind, int> own{kind_of(slot), slot.group};
    if (std::ranges::find(seen, own) != seen.end()) continue;
    seen.push_back(own);
    const DType grad_dtype = grad_dtype_of(own.first);
    if (!steps_eagerly(execution_, own.first, grad_dtype)) continue;
    for (const bool by_factor : {false, true}) {  // every step finds room, whether it clips or not
      const StepShape shape = shape_of(own.first, grad_dtype, execution_, by_factor);
      needed = std::max(needed, least_budget(program_of(own.first, groups_[slot.group], shape).bytes_per_element()));
    }
  }
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
        {&family.list->entries()[static_cast<size_t>(slot.entry)], slot.states, static_cast<uint32_t>(s)});
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
  const char* const own = static_cast<const char*>(family.hyper_blocks.data_ptr()) +
                          static_cast<size_t>(hyper_block) * family.hyper_block_bytes();
  EagerWork work{.program = std::move(program),
                 .is_foreach = execution_ != Execution::loop,
                 .where = where_,
                 .device = family.device,
                 .dtype = family.dtype,
                 .grad_dtype = family.grad_dtype,
                 .states = family.rule->states,
                 .state_dtypes = {},
                 .hyper = own + family.rule->hyper_at[family.f64()],
                 .zero_grads = zero_grads,
                 .compression = family.compression()};
  for (int k = 0; k < family.arrays(); ++k) work.state_dtypes[k] = family.array_dtype(k);
  work.compression.steps = reinterpret_cast<const double*>(own + family.rule->next_at[family.f64()]);
  return EagerStep(work, std::move(parameters), budget_of(execution_));
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
  const double* const factor = grad_factor.defined() ? grad_factor.data<double>() : nullptr;
  const Stream stream = current_stream(family.device);
  for (EagerStep& step : family.eager->steps) step.run(factor, stream);
  family.rule->kernels(family.device)
      .advance(family.hyper_blocks.data_ptr(), family.f64(), 0, static_cast<int32_t>(family.block_groups.size()),
               factor, stream);
}

}  // namespace lorry::optim
