#include "lorry/optim/stepper.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lorry/autograd/grad_mode.h"
#include "lorry/foreach/overlap.h"
#include "lorry/kernels/common/recorded_rule.h"
#include "lorry/memory/meta_allocator.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/tensor/changes.h"
#include "lorry/trace/recorder.h"

namespace lorry::optim {

namespace {

/// Throws unless x can be a setting of parameters on `device`.
void require_number_in(const char* name, const Tensor& x, Device device) {
  require<ValueError>(x.defined(), "the tensor for {} is undefined; expected a floating tensor of one element", name);
  require<DTypeError>(is_floating(x.dtype()), "the tensor for {} is not floating; got {}; expected one of {}", name, x,
                      kFloatingNames);
  require<ShapeError>(x.numel() == 1, "the tensor for {} is no single number; got {}; expected one element", name, x);
  require<DeviceError>(x.device().is_cpu() || x.device() == device,
                       "the tensor for {} is on another device than its parameters; got {}; expected {} or the CPU",
                       name, x, device);
}

/// Throws unless `value` is in the domain of the setting.
void require_in_domain(const detail::AnyRule::Setting& setting, double value) {
  const auto check = [&](bool fits, const std::string& expected) {
    require<ValueError>(fits && std::isfinite(value), "{} is out of range; got {}; expected {}", setting.name, value,
                        expected);
  };
  switch (setting.domain) {
    case formula::Domain::finite:
      return check(true, "a finite number");
    case formula::Domain::not_negative:
      return check(value >= 0, "a finite number >= 0");
    case formula::Domain::positive:
      return check(value > 0, "a finite number > 0");
    case formula::Domain::below_one:
      return check(value >= 0 && value < 1, fmt::format("0 <= {} < 1", setting.name));
    case formula::Domain::unit_interval:
      return check(value >= 0 && value <= 1, fmt::format("0 <= {} <= 1", setting.name));
    case formula::Domain::inside_unit:
      return check(value > 0 && value < 1, fmt::format("0 < {} < 1", setting.name));
    case formula::Domain::above_one:
      return check(value > 1, "a finite number > 1");
  }
}

void require_no_conflict(const detail::AnyRule& rule) {
  if (const char* const conflict = rule.conflict()) raise<ValueError>("{}", conflict);
}

}  // namespace

Stepper::Stepper(const char* where, Execution execution)
    : where_(where),
      execution_(execution == Execution::automatic ? Execution::fused : execution),
      epoch_(make_counted<lorry::detail::Epoch>()),
      grad_epoch_(make_counted<lorry::detail::Epoch>(true)) {}

Stepper::~Stepper() {
  epoch_->close();
  grad_epoch_->close();
}

// ---- groups ---------------------------------------------------------------------------------------------------------

void Stepper::add_group(const std::vector<NamedTensor>& params, std::shared_ptr<detail::AnyRule> rule,
                        const Memory& memory) {
  const Running running(where_);
  for (int k = 0; k < rule->info().settings; ++k) require_in_domain(rule->setting(k), rule->setting(k).number);
  require_no_conflict(*rule);
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
  if (execution_ == Execution::compiled) detail::require_recordable(*rule);
  const GroupState group{std::move(rule), memory};
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
  if (is_narrow(param.dtype()) && param.dtype() != kBF16) {
    require<DTypeError>(memory.masters != Masters::split,
                        "parameter '{}' cannot be split; got {}; expected bf16, or f32 and f64, which need no master",
                        name, param);
    require<DTypeError>(memory.masters != Masters::stochastic,
                        "parameter '{}' cannot be rounded stochastically; got {}; expected bf16, or f32 and f64, "
                        "which need it not; or take Masters::f32",
                        name, param);
  }
  for (int k = 0; k < group.rule->info().states && param.dtype() == kF64; ++k)
    require<DTypeError>(
        memory.states[k] == StateType::f32,
        "states of parameter '{}' cannot be {}; got {}; expected f32, f16 or bf16, or states of StateType::f32", name,
        lorry::name(memory.states[k]), param);
}

void Stepper::require_separate(const std::vector<NamedTensor>& added) const {
  const Running running(where_);
  std::vector<Tensor> all = parameters();
  for (const auto& [name, param] : added) all.push_back(param);
  const auto overlap = foreach::WrittenMemory(all).within();
  if (!overlap) return;
  const auto name = [&](size_t i) -> const std::string& {
    return i < slots_.size() ? slots_[i].name : added[i - slots_.size()].first;
  };
  const auto [one, other] = std::minmax(name(overlap->first), name(overlap->second));
  require<ValueError>(!overlap->certain, "parameters '{}' and '{}' share memory; list each tensor once", one, other);
  raise<ValueError>(
      "parameters '{}' and '{}' may share memory, their strides do not tell; got strides {} and {}; clone one of "
      "them",
      one, other, all[overlap->first].strides(), all[overlap->second].strides());
}

std::vector<Tensor> Stepper::parameters() const {
  std::vector<Tensor> parameters;
  for (const Slot& slot : slots_) parameters.push_back(slot.param);
  return parameters;
}

// ---- settings -------------------------------------------------------------------------------------------------------

const GroupState& Stepper::group(int group) const {
  const Running running(where_);
  require<IndexError>(group >= 0 && group < groups(), "no such group; got {}; expected 0 to {}", group, groups() - 1);
  return groups_[static_cast<size_t>(group)];
}

std::vector<std::string> Stepper::settings(int group) const {
  detail::AnyRule& rule = *this->group(group).rule;
  std::vector<std::string> names;
  for (int k = 0; k < rule.info().settings; ++k) names.emplace_back(rule.setting(k).name);
  return names;
}

int Stepper::setting_index(int group, std::string_view name) const {
  detail::AnyRule& rule = *this->group(group).rule;
  for (int k = 0; k < rule.info().settings; ++k)
    if (rule.setting(k).name == name) return k;
  raise_as<ValueError>(where_,
                       "'{}' is not a changeable setting; expected one of {}; flags, and what decides on a rule's "
                       "states, are fixed when "
                       "the group is made",
                       name, fmt::join(settings(group), ", "));
}

Tensor Stepper::setting_tensor(int group, std::string_view name) const {
  const int k = setting_index(group, name);
  for (const SettingTensor& x : this->group(group).tensors)
    if (x.setting == k) return x.tensor;
  return {};
}

double Stepper::get(int group, std::string_view name) const {
  if (const Tensor x = setting_tensor(group, name); x.defined()) return x.item<double>();
  return this->group(group).rule->setting(setting_index(group, name)).number;
}

void Stepper::set(int group, std::string_view name, const Operand& value) {
  const Running running(where_);
  trace::Recorder::refuse("the host sets a number, which runs would not set again; a schedule's step is repeated");
  const int k = setting_index(group, name);
  if (const Tensor* const tensor = value.tensor())
    set_tensor(group, k, *tensor);
  else
    set_number(group, k, value.scalar().to<double>());
}

void Stepper::set_number(int group, int k, double value) {
  GroupState& own = groups_[static_cast<size_t>(group)];
  const detail::AnyRule::Setting setting = own.rule->setting(k);
  require_in_domain(setting, value);
  std::vector<SettingTensor> tensors = own.tensors;
  const bool was_tensor = std::erase_if(own.tensors, [&](const SettingTensor& x) { return x.setting == k; }) > 0;
  if (!was_tensor && setting.number == value) return;
  const double before = std::exchange(setting.number, value);
  try {
    if (own.tensors.empty()) require_no_conflict(*own.rule);  // else read_settings checks it before a step
    for (Family& family : families_) write_hyper_blocks(family, group);
    settings_changed();
  } catch (...) {
    setting.number = before;
    own.tensors = std::move(tensors);
    seen_ = 0;  // the next step writes every hyper block again: some may have the new value already
    throw;
  }
}

void Stepper::set_tensor(int group, int k, const Tensor& value) {
  GroupState& own = groups_[static_cast<size_t>(group)];
  const char* const name = own.rule->setting(k).name;
  require_number_in(name, value, value.defined() ? value.device() : kCPU);
  for (const Slot& slot : slots_)
    if (slot.group == group) require_number_in(name, value, slot.param.device());
  const auto known = std::ranges::find(own.tensors, k, &SettingTensor::setting);
  if (known == own.tensors.end())
    own.tensors.push_back({k, value});
  else
    known->tensor = value;
  settings_changed();
}

void Stepper::settings_changed() {
  for (Family& family : families_)
    if (family.step != nullptr) family.step->settings_changed();
}

void Stepper::read_settings() {
  const Running running(where_);
  for (const GroupState& group : groups_) {
    if (group.tensors.empty()) continue;
    detail::AnyRule& rule = *group.rule;
    std::vector<std::pair<double*, double>> before;
    try {
      for (const auto& [k, tensor] : group.tensors) {
        const detail::AnyRule::Setting setting = rule.setting(k);
        require_number_in(setting.name, tensor, tensor.device());
        if (!tensor.device().is_cpu()) continue;
        const double value = detail::number_source(0, k, tensor).value;
        require_in_domain(setting, value);
        before.emplace_back(&setting.number, std::exchange(setting.number, value));
      }
      if (before.size() == group.tensors.size()) require_no_conflict(rule);
    } catch (...) {
      for (const auto& [number, value] : before) *number = value;
      throw;
    }
  }
}

std::vector<kernels::NumberSource> Stepper::numbers_of(const Family& family) const {
  const Running running(where_);
  std::vector<kernels::NumberSource> numbers;
  for (size_t c = 0; c < family.block_groups.size(); ++c) {
    const GroupState& group = groups_[static_cast<size_t>(family.block_groups[c])];
    for (const auto& [k, tensor] : group.tensors) {
      require_number_in(group.rule->setting(k).name, tensor, family.device);
      numbers.push_back(detail::number_source(static_cast<int>(c), k, tensor));
    }
  }
  return numbers;
}

/// The initial value of state k. If it depends on a setting that lies in a tensor on a GPU, reads the setting, which
/// waits for the device; that happens once for new parameters.
double Stepper::first_state(const GroupState& group, int k) const {
  detail::AnyRule& rule = *group.rule;
  for (const auto& [setting, tensor] : group.tensors) {
    if (tensor.device().is_cpu()) continue;
    double& number = rule.setting(setting).number;
    const double before = std::exchange(number, NAN);
    number = std::isnan(rule.first_state(k)) ? tensor.item<double>() : before;
  }
  return rule.first_state(k);
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

// ---- families and hyper blocks --------------------------------------------------------------------------------------

FamilyKind Stepper::kind_of(const Slot& slot) const {
  const GroupState& group = groups_[slot.group];
  FamilyKind kind{&group.rule->info(), slot.param.device(), slot.param.dtype(), group.memory};
  Memory& memory = kind.memory;
  if (!is_narrow(kind.dtype)) memory.masters = Masters::none;
  if (memory::represented_device(kind.device).is_cpu()) memory.placement = Placement::device;
  bool rounds = memory.masters == Masters::stochastic;
  for (int k = 0; k < kMaxStates; ++k) {
    if (k >= kind.rule->states) memory.states.each[k] = StateType::f32;
    rounds = rounds || memory.states[k] == StateType::bf16;
  }
  if (!rounds) memory.seed = 0;
  return kind;
}

int Stepper::family_of(const Slot& slot) {
  const FamilyKind kind = kind_of(slot);
  for (size_t f = 0; f < families_.size(); ++f)
    if (static_cast<const FamilyKind&>(families_[f]) == kind) return static_cast<int>(f);
  const detail::AnyRule& rule = *groups_[static_cast<size_t>(slot.group)].rule;
  auto blocks = kind.rule->make_blocks(kind.device, kind.f64());
  if (execution_ == Execution::compiled) blocks->use_recorded(detail::record_rule(rule, *blocks, kind.f64()));
  families_.push_back({kind, std::move(blocks)});
  return static_cast<int>(families_.size()) - 1;
}

/// Adds a copy of hyper block `like`, or if that is -1 one that has made no step. write_hyper_blocks writes its
/// settings.
int Stepper::new_hyper_block(Family& family, int group, int like) {
  family.block_groups.reserve(family.block_groups.size() + 1);
  const int made = like >= 0
                       ? family.blocks->add_copy(like)
                       : family.blocks->add(*groups_[static_cast<size_t>(group)].rule, family.rule->first_progress);
  family.block_groups.push_back(group);
  return made;
}

/// Writes the settings of all hyper blocks of a group (-1: of all groups), and which hyper blocks are stepped next.
void Stepper::write_hyper_blocks(Family& family, int only_group) {
  std::vector<bool> running(family.block_groups.size());
  for (const int s : family.slots) running[slots_[s].hyper_block] = true;
  std::vector<detail::HyperBlocks::Change> changes;
  for (size_t c = 0; c < family.block_groups.size(); ++c)
    if (const int group = family.block_groups[c]; only_group < 0 || group == only_group)
      changes.push_back({static_cast<int>(c), running[c], groups_[static_cast<size_t>(group)].rule.get()});
  family.blocks->set(changes);
}

}  // namespace lorry::optim
