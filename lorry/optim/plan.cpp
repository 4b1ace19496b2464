// The plan of a step: which parameters are stepped together, and the addresses of all arrays. It is kept until a
// gradient appears or disappears, or a layout or dtype changes. Addresses of gradients are updated in it.

#include <algorithm>
#include <optional>
#include <utility>

#include "lorry/base/events.h"
#include "lorry/foreach/overlap.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/optim/step_plan.h"
#include "lorry/optim/stepper.h"
#include "lorry/tensor/changes.h"

namespace lorry::optim {

using foreach::ListPlan;

namespace {

/// Whether the same offset holds the same element in both layouts, which have the same sizes.
bool same_order(const Layout& a, const Layout& b) {
  for (int i = 0; i < a.rank; ++i)
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

/// Whether the storage of a gradient holds no other gradient of any parameter.
bool alone(const Tensor& grad) { return grad.storage().gradients() == 1 && !grad.storage().foreign(); }

/// Whether door::require_writable may refuse a gradient.
bool guarded(const Tensor& grad) {
  return grad.storage().read_only() || grad.is_inference() ||
         (!grad.is_contiguous() && grad.layout().has_internal_overlap());
}

}  // namespace

DType grad_dtype_in_kernels(DType param, DType grad) {
  if (grad == param || (grad == kF32 && is_narrow(param))) return grad;
  return param == kF64 ? kF64 : kF32;
}

DType common_grad_dtype(DType param, std::optional<DType> so_far, DType grad) {
  const DType own = grad_dtype_in_kernels(param, grad);
  if (!so_far || *so_far == own) return own;
  return param == kF64 ? kF64 : kF32;
}

void Stepper::check(Slot& slot, const Tensor& grad) const {
  const Running running(where_);
  const Tensor& param = slot.param;
  require<ShapeError>(grad.sizes() == param.sizes(),
                      "the gradient of '{}' has another shape; got gradient: {}, parameter: {}", slot.name, grad,
                      param);
  require<DeviceError>(grad.device() == param.device(),
                       "the gradient of '{}' is on another device; got gradient: {}, parameter: {}", slot.name, grad,
                       param);
  door::require_writable(param);
  if (slot.family < 0) return require_memory_fits(slot.name, param, groups_[slot.group]);
  const Family& family = families_[slot.family];
  const bool fits = family.device == param.device() && family.dtype == param.dtype() &&
                    (family.arrays() == 0 || slot.layout.size_list() == param.sizes());
  if (fits) return;  // formats no strings: this function runs for every gradient that is replaced
  raise<ShapeError>("parameter '{}' has changed since its last step; got {} with a state of {}; make a new optimizer",
                    slot.name, param,
                    family.arrays() == 0
                        ? fmt::format("{} {}", family.dtype, family.device)
                        : fmt::format("{} {} {}", slot.layout.size_list(), family.array_dtype(0), family.device));
}

void Stepper::refresh() {
  const uint64_t now = changes();
  if (seen_ == now) return;
  const uint64_t since = std::exchange(seen_, 0);  // so that a plan that throws is made again
  if (since == 0 || last_reshaped() > since || !update_addresses(since)) lay_out();
  seen_ = now;
}

/// Takes the addresses of gradients that were replaced since. Returns false if more than addresses changed.
bool Stepper::update_addresses(uint64_t since) {
  if (plan_->has_copies() || !shared_grad_storages_.empty() || !guarded_.empty()) return false;
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (slot.gradient->changed() <= since) continue;
    const Tensor grad = slot.gradient->grad();
    if (grad.defined() != (slot.entry >= 0)) return false;
    if (!grad.defined()) continue;
    check(slot, grad);
    if (guarded(grad) || plan_->update(kGrad, static_cast<uint32_t>(s), grad) == ListPlan::Change::layout) return false;
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
  if (const auto overlap = foreach::WrittenMemory(grads).within())
    raise<ValueError>(
        "the gradients of '{}' and '{}' {}share memory; got zero_grad, which writes them; expected a gradient of its "
        "own for each parameter",
        slots_[overlap->first].name, slots_[overlap->second].name, overlap->certain ? "" : "may ");
  separate_ = true;
}

struct Stepper::DraftParameter {
  Tensor given;        ///< the gradient; undefined: the parameter is not stepped, and nothing below is set
  Tensor param, grad;  ///< what the lists hold: parameter and gradient, or their copies
  Tensor param_source, grad_source, states[kMaxStates + 1];
  bool copies_param = false, copies_grad = false;
  int family = -1, hyper_block = -1;
};

/// All that may fail goes into a draft: on failure only unused families and hyper blocks were added.
struct Stepper::Draft {
  std::vector<DraftParameter> parameters;         ///< of the slots
  std::vector<std::optional<DType>> grad_dtypes;  ///< of the families that are stepped: as their kernels get gradients
  std::vector<int> in_plan;                       ///< their groups
  ListPlan plan;
  size_t gradients = 0;  ///< its lists of gradients alone
};

void Stepper::lay_out() {
  const Running running(where_);
  Draft draft{.parameters = std::vector<DraftParameter>(slots_.size()),
              .grad_dtypes = {},
              .in_plan = {},
              .plan = new_step_plan(strategy_)};
  for (size_t s = 0; s < slots_.size(); ++s) {
    Tensor& grad = draft.parameters[s].given;
    grad = slots_[s].param.grad();
    if (grad.defined()) check(slots_[s], grad);
  }
  require_budget();
  draft_families(draft);
  for (size_t s = 0; s < slots_.size(); ++s)
    if (DraftParameter& own = draft.parameters[s]; own.given.defined())
      draft_arrays(slots_[s], *draft.grad_dtypes[static_cast<size_t>(own.family)], own);
  draft_hyper_blocks(draft);
  draft_plan(draft);
  adopt(draft);
  for (Family& family : families_)
    if (!family.block_groups.empty()) write_hyper_blocks(family, -1);
}

/// Finds the family of each parameter that is stepped, and the dtype of the gradients in each family's kernels.
void Stepper::draft_families(Draft& draft) {
  for (size_t s = 0; s < slots_.size(); ++s) {
    DraftParameter& own = draft.parameters[s];
    if (!own.given.defined()) continue;
    own.family = slots_[s].family >= 0 ? slots_[s].family : family_of(slots_[s]);
    draft.grad_dtypes.resize(families_.size());
    std::optional<DType>& common = draft.grad_dtypes[static_cast<size_t>(own.family)];
    common = common_grad_dtype(slots_[s].param.dtype(), common, own.given.dtype());
  }
  draft.grad_dtypes.resize(families_.size());
}

/// Makes states, and copies of a non-dense parameter and of a gradient in another layout or dtype.
void Stepper::draft_arrays(const Slot& slot, DType grad_dtype, DraftParameter& own) const {
  const auto tell_of_copy = [&](const char* what) {
    if (!slot.param.device().is_meta()) events::emit(events::Kind::hidden_copy, where_, what);
  };
  own.param_source = own.param = slot.param.detach();
  own.copies_param = !own.param.layout().is_dense();
  if (own.copies_param) {
    tell_of_copy("a parameter that is not dense is stepped in a copy");
    own.param = own.param.clone().contiguous();
  }
  own.grad_source = own.grad = own.given.detach();
  const bool converts = own.grad.dtype() != grad_dtype;
  own.copies_grad = converts || !same_order(own.param.layout(), own.grad.layout());
  if (own.copies_grad) {
    tell_of_copy(converts ? "a gradient is converted to the dtype in which its parameter is stepped"
                          : "a gradient is copied into the layout of its parameter");
    own.grad = empty_like(own.param, grad_dtype);
  }
  const FamilyKind kind = kind_of(slot);
  for (int k = 0; k < kind.arrays(); ++k) {
    if (!slot.states[k].defined())
      own.states[k] = new_state(slot, kind, own.param, k);
    else
      own.states[k] =
          same_order(slot.layout, own.param.layout()) ? slot.states[k] : reordered(slot, kind, own.param, k);
  }
}

/// New parameters of a group and family share a hyper block. If only some parameters of a hyper block are stepped,
/// these get a copy of it.
void Stepper::draft_hyper_blocks(Draft& draft) {
  struct Fresh {
    int family, group, hyper_block;
  };
  std::vector<Fresh> fresh;
  std::vector<std::vector<int>> members(families_.size()), stepping(families_.size()), copies(families_.size());
  for (size_t f = 0; f < families_.size(); ++f) {
    members[f] = stepping[f] = std::vector<int>(families_[f].block_groups.size());
    copies[f].assign(families_[f].block_groups.size(), -1);
  }
  for (size_t s = 0; s < slots_.size(); ++s)
    if (const Slot& slot = slots_[s]; slot.family >= 0) {
      ++members[slot.family][slot.hyper_block];
      stepping[slot.family][slot.hyper_block] += draft.parameters[s].given.defined();
    }
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    DraftParameter& own = draft.parameters[s];
    if (!own.given.defined()) continue;
    own.hyper_block = slot.hyper_block;
    if (slot.family >= 0) {
      if (stepping[slot.family][slot.hyper_block] == members[slot.family][slot.hyper_block]) continue;
      int& copy = copies[slot.family][slot.hyper_block];
      if (copy < 0) copy = new_hyper_block(families_[slot.family], slot.group, slot.hyper_block);
      own.hyper_block = copy;
      continue;
    }
    auto known =
        std::ranges::find_if(fresh, [&](const Fresh& x) { return x.family == own.family && x.group == slot.group; });
    if (known == fresh.end())
      known =
          fresh.insert(fresh.end(), {own.family, slot.group, new_hyper_block(families_[own.family], slot.group, -1)});
    own.hyper_block = known->hyper_block;
  }
}

void Stepper::draft_plan(Draft& draft) const {
  draft.in_plan.assign(families_.size(), -1);
  draft.plan.reserve(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    const DraftParameter& own = draft.parameters[s];
    if (own.family < 0) {
      const Tensor* nothing[kStepRoles] = {};
      draft.plan.add_ungrouped(nothing);
      continue;
    }
    const auto f = static_cast<size_t>(own.family);
    const Family& family = families_[f];
    if (draft.in_plan[f] < 0) {
      std::vector<DType> states;
      for (int k = 0; k < family.rule->states; ++k) states.push_back(family.array_dtype(k));
      draft.in_plan[f] = static_cast<int>(step_group(draft.plan, family.device, family.dtype, *draft.grad_dtypes[f],
                                                     states, family.array_dtype(family.rule->states), f));
    }
    add_step_entry(draft.plan, static_cast<uint32_t>(draft.in_plan[f]), own.param, own.grad,
                   std::span(own.states, static_cast<size_t>(family.arrays())),
                   {.word = static_cast<uint32_t>(own.hyper_block), .number = static_cast<uint32_t>(s)});
    if (own.copies_param) draft.plan.use_copy(kParam, own.param_source, own.param);
    if (own.copies_grad) draft.plan.use_copy(kGrad, own.grad_source, own.grad);
  }
  draft.gradients = draft.plan.add_lists({kGrad});
}

/// Makes a draft the plan. Does not fail.
void Stepper::adopt(Draft& draft) {
  plan_ = std::move(draft.plan);
  gradients_ = draft.gradients;
  for (size_t f = 0; f < families_.size(); ++f) {
    Family& family = families_[f];
    family.step.reset();
    family.in_plan = draft.in_plan[f];
    family.slots.clear();
    if (family.in_plan >= 0)
      for (const uint32_t s : plan_->groups()[static_cast<size_t>(family.in_plan)].entries)
        family.slots.push_back(static_cast<int>(s));
    family.grad_dtype = draft.grad_dtypes[f].value_or(family.dtype);
  }
  shared_storages_.clear();
  shared_grad_storages_.clear();
  guarded_.clear();
  separate_ = false;
  // Unstepped parameters leave the epoch, so our writes do not raise their version. Those that share a storage with a
  // stepped one join again below.
  for (size_t s = 0; s < slots_.size(); ++s)
    if (Storage& storage = slots_[s].param.storage(); draft.parameters[s].family < 0 && storage.has_joined(*epoch_))
      storage.leave();
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    DraftParameter& own = draft.parameters[s];
    slot.entry = own.family < 0 ? -1 : static_cast<int>(plan_->position(s).index);
    slot.dense_param = slot.grad_copy = Tensor();
    if (own.family < 0) continue;
    slot.family = own.family, slot.hyper_block = own.hyper_block;
    slot.layout = own.param.layout();
    std::ranges::move(own.states, slot.states);
    slot.grad_source = Tensor();
    if (own.copies_param) slot.dense_param = own.param;
    if (own.copies_grad) slot.grad_copy = own.grad, slot.grad_source = own.grad_source;
    if (!slot.param.storage().join(epoch_)) shared_storages_.push_back(&slot.param.storage());
    if (!own.given.storage().join(grad_epoch_)) shared_grad_storages_.push_back(&own.given.storage());
    if (guarded(own.given)) guarded_.push_back(static_cast<int>(s));
  }
}

}  // namespace lorry::optim
