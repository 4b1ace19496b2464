// Which parameters are stepped together, and where everything lies: the plan of a step. It stands until a gradient
// comes or goes, or something changes its layout; gradients that only moved are patched.

#include <algorithm>
#include <optional>
#include <utility>

#include "lorry/base/events.h"
#include "lorry/foreach/overlap.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
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

void Stepper::check(Slot& slot, const Tensor& grad) const {
  const Running running(where_);
  const Tensor& param = slot.param;
  require<ShapeError>(grad.sizes() == param.sizes(),
                      "the gradient of '{}' has another shape; got gradient: {}, parameter: {}", slot.name, grad,
                      param);
  require<DTypeError>(grad.dtype() == param.dtype() || (grad.dtype() == kF32 && is_narrow(param.dtype())),
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
  if (const auto overlap = foreach::WrittenMemory(grads).within())
    raise<ValueError>(
        "the gradients of '{}' and '{}' {}share memory; got zero_grad, which writes them; expected a gradient of its "
        "own for each parameter",
        slots_[overlap->first].name, slots_[overlap->second].name, overlap->certain ? "" : "may ");
  separate_ = true;
}

struct Stepper::DraftParameter {
  Tensor given;        ///< the gradient; undefined: the parameter is not stepped, and nothing below is set
  Tensor param, grad;  ///< what the lists hold: parameter and gradient, or their contiguous copies
  Tensor param_source, grad_source, states[kMaxStates + 1];
  int family = -1, hyper_block = -1;
};

/// All that may fail goes into a draft: when memory runs out, nothing has changed but hyper blocks that nobody has yet.
struct Stepper::Draft {
  struct Lists {
    std::unique_ptr<kernels::List> list, grads;
    std::vector<int> slots;
    std::optional<DType> grad_dtype;
  };
  std::vector<DraftParameter> parameters;  ///< of the slots
  std::vector<Lists> lists;                ///< of the families
};

void Stepper::lay_out() {
  const Running running(where_);
  Draft draft;
  draft.parameters.resize(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    Tensor& grad = draft.parameters[s].given;
    grad = slots_[s].param.grad();
    if (grad.defined()) check(slots_[s], grad);
  }
  require_budget();
  for (size_t s = 0; s < slots_.size(); ++s)
    if (draft.parameters[s].given.defined()) draft_arrays(slots_[s], draft.parameters[s]);
  draft_hyper_blocks(draft);
  draft_lists(draft);
  adopt(draft);
  for (Family& family : families_)
    if (!family.block_groups.empty()) write_hyper_blocks(family, -1);
}

/// Copies of a parameter that is not dense and of a gradient in another layout, and the states.
void Stepper::draft_arrays(const Slot& slot, DraftParameter& own) const {
  const auto tell_of_copy = [&](const char* what) {
    if (!slot.param.device().is_meta()) events::emit(events::Kind::hidden_copy, where_, what);
  };
  own.param_source = own.param = slot.param.detach();
  if (!own.param.layout().is_dense()) {
    tell_of_copy("a parameter that is not dense is stepped in a copy");
    own.param = own.param.clone().contiguous();
  }
  own.grad_source = own.grad = own.given.detach();
  if (!same_order(own.param.layout(), own.grad.layout())) {
    tell_of_copy("a gradient is copied into the layout of its parameter");
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

/// Parameters of a group and family that are new share a hyper block; one whose parameters part ways is copied.
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
    own.family = slot.family, own.hyper_block = slot.hyper_block;
    if (slot.family >= 0) {
      if (stepping[slot.family][slot.hyper_block] == members[slot.family][slot.hyper_block]) continue;
      int& copy = copies[slot.family][slot.hyper_block];
      if (copy < 0) copy = new_hyper_block(families_[slot.family], slot.group, slot.hyper_block);
      own.hyper_block = copy;
      continue;
    }
    own.family = family_of(slot);
    auto known =
        std::ranges::find_if(fresh, [&](const Fresh& x) { return x.family == own.family && x.group == slot.group; });
    if (known == fresh.end())
      known =
          fresh.insert(fresh.end(), {own.family, slot.group, new_hyper_block(families_[own.family], slot.group, -1)});
    own.hyper_block = known->hyper_block;
  }
}

void Stepper::draft_lists(Draft& draft) const {
  std::vector<Draft::Lists>& lists = draft.lists;
  lists.resize(families_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    const DraftParameter& own = draft.parameters[s];
    if (own.family < 0) continue;
    std::optional<DType>& all = lists[own.family].grad_dtype;
    if (!all) all = own.given.dtype();
    require<DTypeError>(*all == own.given.dtype(),
                        "the gradient of '{}' has another dtype than that of a parameter that is stepped with it; "
                        "got {}; expected {} for all",
                        slots_[s].name, own.given.dtype(), *all);
  }
  for (size_t f = 0; f < families_.size(); ++f) {
    const Family& family = families_[f];
    const DType grad_dtype = lists[f].grad_dtype.value_or(family.dtype);
    std::vector<DType> dtypes{family.dtype, grad_dtype};
    for (int k = 0; k < family.rule->states; ++k) dtypes.push_back(family.array_dtype(k));
    // Lists of 16-bit parameters carry an array of masters, null where there are none.
    if (is_narrow(family.dtype)) dtypes.push_back(family.array_dtype(family.rule->states));
    lists[f].list = std::make_unique<kernels::List>(family.device, dtypes, strategy_);
    lists[f].grads = std::make_unique<kernels::List>(family.device, std::span(&grad_dtype, 1), strategy_);
  }
  for (size_t s = 0; s < slots_.size(); ++s) {
    const DraftParameter& own = draft.parameters[s];
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
}

/// Takes a draft over. Nothing fails here.
void Stepper::adopt(Draft& draft) {
  for (size_t f = 0; f < families_.size(); ++f) {
    Family& family = families_[f];
    Draft::Lists& lists = draft.lists[f];
    family.streamed.reset();
    family.eager.reset();
    family.list = std::move(lists.list);
    family.grads = std::move(lists.grads);
    family.slots = std::move(lists.slots);
    family.grad_dtype = lists.grad_dtype.value_or(family.dtype);
  }
  std::vector<int> entries(families_.size());
  copied_.clear();
  shared_storages_.clear();
  shared_grad_storages_.clear();
  guarded_.clear();
  separate_ = false;
  // A parameter that is not stepped must not count our writes, unless it shares its storage with one that is.
  for (size_t s = 0; s < slots_.size(); ++s)
    if (Storage& storage = slots_[s].param.storage(); draft.parameters[s].family < 0 && storage.has_joined(*epoch_))
      storage.leave();
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    DraftParameter& own = draft.parameters[s];
    slot.entry = own.family < 0 ? -1 : entries[own.family]++;
    slot.dense_param = slot.ordered_grad = Tensor();
    if (own.family < 0) continue;
    slot.family = own.family, slot.hyper_block = own.hyper_block;
    slot.layout = own.param.layout();
    std::ranges::move(own.states, slot.states);
    slot.param_source = slot.grad_source = Tensor();
    if (own.param.data_ptr() != slot.param.data_ptr())
      slot.dense_param = own.param, slot.param_source = own.param_source;
    if (own.grad.data_ptr() != own.given.data_ptr()) slot.ordered_grad = own.grad, slot.grad_source = own.grad_source;
    if (slot.dense_param.defined() || slot.ordered_grad.defined()) copied_.push_back(static_cast<int>(s));
    if (!slot.param.storage().join(epoch_)) shared_storages_.push_back(&slot.param.storage());
    if (!own.given.storage().join(grad_epoch_)) shared_grad_storages_.push_back(&own.given.storage());
    if (guarded(own.given)) guarded_.push_back(static_cast<int>(s));
  }
}

}  // namespace lorry::optim
