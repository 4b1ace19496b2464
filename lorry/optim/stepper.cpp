#include "lorry/optim/stepper.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/optim/separate.h"
#include "lorry/tensor/changes.h"

namespace lorry::optim {

Stepper::Stepper(const char* where, Execution execution)
    : where_(where),
      execution_(execution == Execution::automatic ? Execution::fused : execution),
      epoch_(make_counted<Epoch>()),
      grad_epoch_(make_counted<Epoch>(true)) {
  const Running running(where_);
  require<ValueError>(execution_ != Execution::compiled,
                      "execution 'compiled' is not part of this build; expected automatic, loop, foreach or fused");
}

Stepper::~Stepper() {
  epoch_->close();
  grad_epoch_->close();
}

// ---- groups ---------------------------------------------------------------------------------------------------------

void Stepper::add_group(const std::vector<NamedTensor>& params, const RuleTraits& rule, const void* settings,
                        const Memory& memory) {
  const Running running(where_);
  std::set<std::string_view> names;
  for (const Slot& slot : slots_) names.insert(slot.name);
  for (const auto& [name, param] : params) {
    require<ValueError>(param.defined(), "parameter '{}' is an undefined tensor; expected a tensor", name);
    require<ValueError>(names.insert(name).second, "parameter '{}' is listed twice", name);
    require<DTypeError>(is_floating(param.dtype()), "parameter '{}' is not floating; got {}", name, param);
    require<GradError>(param.requires_grad(),
                       "parameter '{}' does not require a gradient; got {}; call requires_grad_() first", name, param);
    require<GradError>(param.is_leaf(),
                       "parameter '{}' is not a leaf; got {} made by {}; optimize the tensors it was made from", name,
                       param, param.grad_fn());
    door::require_writable(param);
  }
  require_separate(params);
  GroupState group{&rule, {}, memory};
  std::memcpy(group.settings, settings, rule.settings_bytes);
  for (const auto& [name, param] : params) require_memory_fits(name, param, group);
  groups_.push_back(group);
  for (const auto& [name, param] : params) {
    slots_.push_back({name, param, groups() - 1});
    slots_.back().gradient = autograd::meta(param).gradient;
  }
  seen_ = 0;
}

void Stepper::require_parameters() const {
  const Running running(where_);
  require<ValueError>(!slots_.empty(),
                      "there are no parameters to step; got empty lists; expected at least one tensor; a module lists "
                      "what its constructor gave to parameter() and add()");
}

void Stepper::require_memory_fits(const std::string& name, const Tensor& param, const GroupState& group) const {
  const Running running(where_);
  const Memory& memory = group.memory;
  if (param.dtype() == kF16) {
    require<DTypeError>(memory.masters != Masters::split,
                        "parameter '{}' cannot be split; got {}; expected bf16, or f32 and f64, which need no master",
                        name, param);
    require<DTypeError>(memory.masters != Masters::stochastic,
                        "parameter '{}' cannot be rounded stochastically; got {}; expected bf16, or f32 and f64, "
                        "which need it not; or take Masters::f32",
                        name, param);
  }
  for (int k = 0; k < group.rule->states && param.dtype() == kF64; ++k)
    require<DTypeError>(
        memory.states[k] == StateType::f32,
        "states of parameter '{}' cannot be {}; got {}; expected f32, f16 or bf16, or states of StateType::f32", name,
        lorry::name(memory.states[k]), param);
}

void Stepper::require_separate(const std::vector<NamedTensor>& added) const {
  const Running running(where_);
  std::vector<Tensor> all = parameters();
  for (const auto& [name, param] : added) all.push_back(param);
  const auto clash = find_clash(all);
  if (!clash) return;
  const auto name = [&](size_t i) -> const std::string& {
    return i < slots_.size() ? slots_[i].name : added[i - slots_.size()].first;
  };
  const auto [one, other] = std::minmax(name(clash->first), name(clash->second));
  require<ValueError>(!clash->certain, "parameters '{}' and '{}' share memory; list each tensor once", one, other);
  raise<ValueError>(
      "parameters '{}' and '{}' may share memory, their strides do not tell; got strides {} and {}; clone one of "
      "them",
      one, other, all[clash->first].strides(), all[clash->second].strides());
}

std::vector<Tensor> Stepper::parameters() const {
  std::vector<Tensor> parameters;
  for (const Slot& slot : slots_) parameters.push_back(slot.param);
  return parameters;
}

double Stepper::lr(int group) const {
  const Running running(where_);
  require<IndexError>(group >= 0 && group < groups(), "no such group; got {}; expected 0 to {}", group, groups() - 1);
  return groups_[group].rule->lr(const_cast<std::byte*>(groups_[group].settings));
}

void Stepper::set_lr(double lr) {
  for (int group = 0; group < groups(); ++group) set_lr(group, lr);
}

void Stepper::set_lr(int group, double lr) {
  const Running running(where_);
  require<IndexError>(group >= 0 && group < groups(), "no such group; got {}; expected 0 to {}", group, groups() - 1);
  require<ValueError>(lr >= 0 && std::isfinite(lr), "lr is out of range; got {}; expected a finite number >= 0", lr);
  double& own = groups_[group].rule->lr(groups_[group].settings);
  if (own == lr) return;
  const double before = std::exchange(own, lr);
  try {
    for (Family& family : families_) {
      write_hyper_blocks(family, group);
      if (family.eager) family.eager->settings_changed = true;
    }
  } catch (...) {
    own = before;
    seen_ = 0;  // the next step writes every hyper block anew, also those that have the other rate already
    throw;
  }
}

void Stepper::set_strategy(Strategy strategy) {
  strategy_ = strategy;
  seen_ = 0;
}

void Stepper::zero_grad(bool set_to_none) {
  const NoGrad quiet;
  for (const Slot& slot : slots_) {
    const Tensor grad = slot.param.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      slot.param.set_grad({});
    } else {
      grad.detach().zero_();
    }
  }
}

// ---- families and hyper blocks --------------------------------------------------------------------------------------------

Stepper::Kind Stepper::kind_of(const Slot& slot) const {
  const GroupState& group = groups_[slot.group];
  Kind kind{group.rule, slot.param.device(), slot.param.dtype(), group.memory};
  Memory& memory = kind.memory;
  if (kind.dtype != kF16 && kind.dtype != kBF16) memory.masters = Masters::none;
  if (kind.device.is_cpu()) memory.placement = Placement::device;
  bool rounds = memory.masters == Masters::stochastic;
  for (int k = 0; k < kMaxStates; ++k) {
    if (k >= kind.rule->states) memory.states.each[k] = StateType::f32;
    rounds = rounds || memory.states[k] == StateType::bf16;
  }
  if (!rounds) memory.seed = 0;
  return kind;
}

int Stepper::family_of(const Slot& slot) {
  const Kind kind = kind_of(slot);
  for (size_t f = 0; f < families_.size(); ++f)
    if (static_cast<const Kind&>(families_[f]) == kind) return static_cast<int>(f);
  families_.push_back({kind, {}, {}, {}, {}, {}, {}});
  return static_cast<int>(families_.size()) - 1;
}

/// A copy of hyper block `like`, or with -1 one that has made no step; it is written with the next write_hyper_blocks.
int Stepper::new_hyper_block(Family& family, int group, int like) {
  const auto bytes = static_cast<int64_t>(family.hyper_block_bytes()),
             count = static_cast<int64_t>(family.block_groups.size());
  if (const int64_t room = family.hyper_blocks.defined() ? family.hyper_blocks.numel() / bytes : 0; count == room) {
    const Tensor larger = zeros({std::max<int64_t>(8, 2 * room) * bytes}, {.dtype = kU8, .device = family.device});
    if (room > 0) larger.narrow(0, 0, room * bytes).copy_(family.hyper_blocks);
    family.hyper_blocks = larger;
  }
  const auto hyper_block = static_cast<int32_t>(count);
  if (like >= 0) {
    family.hyper_blocks.narrow(0, count * bytes, bytes).copy_(family.hyper_blocks.narrow(0, like * bytes, bytes));
  } else {
    const kernels::HyperBlockChange change{hyper_block, true, groups_[group].settings, family.rule->first_progress};
    family.rule->kernels(family.device)
        .set(family.hyper_blocks.data_ptr(), family.f64(), {&change, 1}, current_stream(family.device));
  }
  family.block_groups.push_back(group);
  return hyper_block;
}

/// Writes the settings of every hyper block of a group (-1: all groups), and which hyper blocks run.
void Stepper::write_hyper_blocks(Family& family, int only_group) {
  std::vector<bool> running(family.block_groups.size());
  for (const int s : family.slots) running[slots_[s].hyper_block] = true;
  std::vector<kernels::HyperBlockChange> changes;
  for (size_t c = 0; c < family.block_groups.size(); ++c)
    if (const int group = family.block_groups[c]; only_group < 0 || group == only_group)
      changes.push_back({static_cast<int32_t>(c), static_cast<bool>(running[c]), groups_[group].settings, nullptr});
  if (!changes.empty())
    family.rule->kernels(family.device)
        .set(family.hyper_blocks.data_ptr(), family.f64(), changes, current_stream(family.device));
}

/// The progress of every hyper block, one after the other. Waits for the device.
std::vector<double> Stepper::progress_of(const Family& family) const {
  const auto count = static_cast<int64_t>(family.rule->progress);
  std::vector<double> progress;
  if (!family.hyper_blocks.defined()) return progress;
  const Tensor bytes = family.hyper_blocks.to(kCPU);
  for (size_t c = 0; c < family.block_groups.size(); ++c) {
    progress.resize(progress.size() + count);
    std::memcpy(&progress[c * count],
                bytes.data<uint8_t>() + c * family.hyper_block_bytes() + family.rule->progress_at[family.f64()],
                count * sizeof(double));
  }
  return progress;
}

}  // namespace lorry::optim
