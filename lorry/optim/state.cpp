// What an optimizer carries from step to step: how it is made, saved and taken over.

#include <cmath>
#include <set>

#include "lorry/autograd/grad_mode.h"
#include "lorry/formula/quantize.h"
#include "lorry/ops/creation.h"
#include "lorry/optim/optimizer.h"
#include "lorry/optim/stored.h"

namespace lorry::optim {
namespace {

/// All of a state in 8 bits becomes a number.
template <bool kSigned>
Tensor filled(const Tensor& state, int64_t n, float number) {
  const auto by = formula::quant_scale(std::bit_cast<uint32_t>(std::fabs(number)));
  state.zero_().narrow(0, 0, n).fill_(static_cast<int64_t>(formula::QuantCode<kSigned>::encode(number, by)));
  scales_of(state, n).fill_(by.scale);
  return state;
}

}  // namespace

DType Optimizer::Kind::stored(int k) const {
  if (k == rule->states) return memory.masters == Masters::split ? kI16 : kF32;
  if (f64()) return kF64;
  constexpr DType kStored[] = {kF32, kBF16, kU8};
  return kStored[static_cast<int>(memory.states[k])];
}

std::string Optimizer::state_key(const Slot& slot, int k) const {
  const RuleTraits& rule = *groups_[slot.group].rule;
  return fmt::format("{}.{}", slot.name, k < rule.states ? rule.state_names[k] : groups_[slot.group].memory.masters == Masters::split ? "remainder" : "master");
}

Tensor Optimizer::Kind::empty_state(int k, const Layout& like) const {
  const DType dtype = stored(k);
  if (dtype == kU8) return empty({formula::quant_bytes(like.numel())}, {kU8, device});
  return empty_strided(like.size_list(), like.stride_list(), {dtype, device});
}

Tensor Optimizer::new_state(const Slot& slot, const Kind& kind, const Tensor& like, int k) const {
  const Tensor state = kind.empty_state(k, like.layout());
  if (k == kind.rule->states) return kind.memory.masters == Masters::split ? state.zero_() : state.copy_(like);
  const double first = kind.rule->first_state(k, groups_[slot.group].settings);
  if (kind.stored(k) == kU8) return (kind.rule->is_signed(k) ? filled<true> : filled<false>)(state, like.numel(), static_cast<float>(first));
  return state.fill_(first);
}

Tensor Optimizer::reordered(const Slot& slot, const Kind& kind, const Tensor& like, int k) const {
  const Tensor state = kind.empty_state(k, like.layout());
  if (kind.stored(k) != kU8) return state.copy_(slot.states[k]);
  const bool is_signed = kind.rule->is_signed(k);
  const Tensor as_it_was = empty_strided(slot.layout.size_list(), slot.layout.stride_list(), {kF32, kind.device}), now = empty_like(like, kF32);
  load_stored(as_it_was, slot.states[k], is_signed);
  store_stored(now.copy_(as_it_was), state, is_signed);
  return state;
}

// ---- state dictionaries ----------------------------------------------------------------------------------------------

TensorMap Optimizer::state_dict() const {
  const NoGrad quiet;
  std::vector<std::vector<double>> progress;
  for (const Family& family : families_) progress.push_back(progress_of(family));
  TensorMap dict;
  for (const Slot& slot : slots_) {
    const RuleTraits& rule = *groups_[slot.group].rule;
    const double* own = slot.family < 0 ? rule.first_progress : &progress[slot.family][static_cast<size_t>(slot.clock) * rule.progress];
    for (int k = 0; k < rule.progress; ++k) {
      const Tensor value = empty({}, {.dtype = kF64, .device = kCPU});
      *value.data<double>() = own[k];
      dict[fmt::format("{}.{}", slot.name, rule.progress_names[k])] = value;
    }
    for (int k = 0; k < kind_of(slot).arrays() && own[0] > 0; ++k) dict[state_key(slot, k)] = slot.states[k];
  }
  return dict;
}

void Optimizer::load_state_dict(const TensorMap& dict) {
  const NoGrad quiet;
  std::set<std::string> used;
  const auto find = [&](const std::string& key) -> const Tensor& {
    const auto found = dict.find(key);
    require<FormatError>(found != dict.end() && found->second.defined(), "{}: state '{}' is missing; load the state of the same optimizer and model", where_,
                         key);
    used.insert(key);
    return found->second;
  };
  const auto check = [&](const std::string& key, const Tensor& got, const Dims& sizes, DType dtype) {
    require<ShapeError>(got.sizes() == sizes, "{}: state '{}' has another shape; got {}; expected {}", where_, key, got, sizes);
    require<DTypeError>(got.dtype() == dtype, "{}: state '{}' has another dtype; got {}; expected {}", where_, key, got, dtype);
  };
  // Everything is made aside, and put in place when nothing can fail any more.
  std::vector<std::vector<double>> progress;
  std::vector<Slot> loaded = slots_;
  for (Slot& slot : loaded) {
    const RuleTraits& rule = *groups_[slot.group].rule;
    std::vector<double>& own = progress.emplace_back();
    for (int k = 0; k < rule.progress; ++k) {
      const std::string key = fmt::format("{}.{}", slot.name, rule.progress_names[k]);
      const Tensor& value = find(key);
      check(key, value, {}, kF64);
      own.push_back(value.item<double>());
      require<FormatError>(std::isfinite(own[k]) && (k > 0 || own[k] >= 0), "{}: state '{}' is out of range; got {}; expected a finite number{}", where_, key,
                           own[k], k > 0 ? "" : " >= 0");
    }
    const Kind kind = kind_of(slot);
    const Tensor like = slot.param.layout().is_dense() ? slot.param.detach() : slot.param.detach().clone().contiguous();
    slot.family = slot.clock = slot.entry = -1;
    slot.layout = like.layout();
    for (Tensor& state : slot.states) state = Tensor();
    for (int k = 0; k < kind.arrays() && own[0] > 0; ++k) {
      const Tensor& value = find(state_key(slot, k));
      slot.states[k] = kind.empty_state(k, slot.layout);
      check(state_key(slot, k), value, slot.param.sizes(), slot.states[k].dtype());
      slot.states[k].copy_(value);
    }
  }
  for (const auto& [key, value] : dict)
    require<FormatError>(used.contains(key), "{}: state '{}' is unexpected; load the state of the same optimizer and model", where_, key);
  std::vector<Family> before;
  std::swap(families_, before);
  try {
    for (size_t s = 0; s < loaded.size(); ++s) {
      Slot& slot = loaded[s];
      if (progress[s][0] == 0) continue;
      slot.family = family_of(slot);
      Family& family = families_[slot.family];
      for (size_t other = 0; other < s && slot.clock < 0; ++other)
        if (loaded[other].family == slot.family && loaded[other].group == slot.group && progress[other] == progress[s]) slot.clock = loaded[other].clock;
      if (slot.clock >= 0) continue;
      slot.clock = new_clock(family, slot.group, -1);
      const kernels::ClockChange change{slot.clock, true, nullptr, progress[s].data()};
      family.rule->kernels(family.device, where_).set(family.clocks.data_ptr(), family.f64(), {&change, 1}, current_stream(family.device));
    }
  } catch (...) {
    std::swap(families_, before);
    throw;
  }
  slots_ = std::move(loaded);
  seen_ = 0;
}

}  // namespace lorry::optim
