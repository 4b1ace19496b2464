// The states of parameters: how they are made, saved and loaded.

#include <cmath>
#include <set>

#include "lorry/autograd/grad_mode.h"
#include "lorry/device/device.h"
#include "lorry/formula/quantize.h"
#include "lorry/ops/creation.h"
#include "lorry/optim/execution/compression.h"
#include "lorry/optim/stepper.h"

namespace lorry::optim {
namespace {

/// Fills an 8-bit state of n elements with a number.
template <bool kSigned>
Tensor filled(const Tensor& state, int64_t n, float number) {
  const auto by = formula::quant_scale(std::bit_cast<uint32_t>(std::fabs(number)));
  state.zero_().narrow(0, 0, n).fill_(static_cast<int64_t>(formula::QuantCode<kSigned>::encode(number, by)));
  scales_of(state, n).fill_(by.scale);
  return state;
}

/// What a user can do about an entry that is missing, unexpected or of another dtype.
const char* remedy(std::string_view key) {
  for (const char* ending : {".master", ".remainder", "_scale", "_strides"})
    if (key.ends_with(ending))
      return "load the state of an optimizer with the same memory, or make this one with the masters and states of the "
             "one that saved it";
  return "load the state of the same optimizer and model";
}

/// Whether states of some optimizer have this dtype.
bool is_state_dtype(DType dtype) { return dtype == kF32 || dtype == kBF16 || dtype == kU8; }

Tensor strides_of(const Layout& layout) {
  const Dims strides = layout.stride_list();
  return from_data(strides.begin(), {static_cast<int64_t>(strides.size())}, kCPU);
}

}  // namespace

/// Finds the entries of a state dictionary, and remembers which were asked for.
class Stepper::StateReader {
 public:
  explicit StateReader(const TensorMap& dict) : dict_(dict) {}

  /// Throws if there is no such entry, or if it has another shape or dtype.
  const Tensor& find(const std::string& key, const Dims& sizes, DType dtype) {
    const auto found = dict_.find(key);
    require<FormatError>(found != dict_.end() && found->second.defined(), "state '{}' is missing; {}", key,
                         remedy(key));
    used_.insert(key);
    const Tensor& got = found->second;
    require<ShapeError>(got.sizes() == sizes, "state '{}' has another shape; got {}; expected {}", key, got, sizes);
    require<DTypeError>(got.dtype() == dtype, "state '{}' has another dtype; got {}; expected {}{}", key, got, dtype,
                        is_state_dtype(got.dtype()) && is_state_dtype(dtype)
                            ? "; make this optimizer with the memory.states of the one that saved it"
                            : "");
    return got;
  }

  /// Throws if the codes of an 8-bit state were saved in another order of memory: the scales are those of 256 codes
  /// that follow each other in memory.
  void require_order(const std::string& key, const Layout& layout) {
    const auto found = dict_.find(key);
    const bool given = found != dict_.end() && found->second.defined();
    if (!given && layout.is_contiguous()) return;
    const Dims saved = given ? Dims(find(key, strides_of(layout).sizes(), kI64).to_vector<int64_t>())
                             : Layout::contiguous(layout.size_list()).stride_list();
    bool same = true;
    for (int i = 0; i < layout.rank; ++i) same = same && (layout.sizes[i] == 1 || saved[i] == layout.strides[i]);
    require<FormatError>(same,
                         "state '{}' is of a parameter in another order in memory; got strides {}; expected {}; lay "
                         "the parameter out as it was saved",
                         key, saved, layout.stride_list());
  }

  /// Throws for an entry that was not asked for.
  void require_all_used() const {
    for (const auto& [key, value] : dict_)
      require<FormatError>(used_.contains(key), "state '{}' is unexpected; {}", key, remedy(key));
  }

 private:
  const TensorMap& dict_;
  std::set<std::string> used_;
};

DType FamilyKind::array_dtype(int k) const {
  if (k == rule->states) return memory.masters == Masters::split ? kI16 : kF32;
  if (f64()) return kF64;
  constexpr DType kStored[] = {kF32, kBF16, kU8};
  return kStored[static_cast<int>(memory.states[k])];
}

std::string Stepper::state_key(const Slot& slot, int k) const {
  const detail::RuleInfo& rule = groups_[slot.group].rule->info();
  return fmt::format("{}.{}", slot.name,
                     k < rule.states                                        ? rule.state_names[k]
                     : groups_[slot.group].memory.masters == Masters::split ? "remainder"
                                                                            : "master");
}

Tensor FamilyKind::empty_state(int k, const Layout& like) const {
  const DType dtype = array_dtype(k);
  const int64_t n = dtype == kU8 ? formula::quant_bytes(like.numel()) : like.numel();
  const Placement placement = device.is_meta() ? Placement::device : memory.placement;
  const Tensor flat = placement == Placement::pinned    ? empty_pinned({n}, dtype)
                      : placement == Placement::managed ? empty_managed({n}, {dtype, device})
                                                        : empty({n}, {dtype, device});
  return dtype == kU8 ? flat : flat.as_strided(like.size_list(), like.stride_list());
}

Compression FamilyKind::compression() const { return {memory.states, rule->is_signed, memory.seed}; }

Tensor FamilyKind::to_device(const Tensor& state) const {
  return state.device() == device ? state : state.to(device, true);
}

void FamilyKind::write_back(const Tensor& state, const Tensor& from) const {
  if (state.device() == device) return;
  const Stream stream = current_stream(device);
  device::copy(state.data_ptr(), state.device(), from.data_ptr(), device, from.nbytes(), stream);
  state.record_stream(stream);
}

Tensor Stepper::new_state(const Slot& slot, const FamilyKind& kind, const Tensor& like, int k) const {
  const Tensor state = kind.empty_state(k, like.layout());
  if (k == kind.rule->states) return kind.memory.masters == Masters::split ? state.zero_() : state.copy_(like);
  const double first = first_state(groups_[slot.group], k);
  if (kind.array_dtype(k) == kU8)
    return (kind.rule->is_signed(k) ? filled<true> : filled<false>)(state, like.numel(), static_cast<float>(first));
  return state.fill_(first);
}

Tensor Stepper::reordered(const Slot& slot, const FamilyKind& kind, const Tensor& like, int k) const {
  const Tensor state = kind.empty_state(k, like.layout()), now = kind.to_device(state),
               before = kind.to_device(slot.states[k]);
  if (kind.array_dtype(k) != kU8) {
    now.copy_(before);
  } else {
    reorder_compressed(kind.compression(), k, before, slot.layout, now, like.layout());
  }
  kind.write_back(state, now);
  return state;
}

// ---- state dictionaries ---------------------------------------------------------------------------------------------

TensorMap Stepper::state_dict() const {
  const NoGrad quiet;
  std::vector<std::vector<double>> progress;
  for (const Family& family : families_) progress.push_back(family.blocks->progress());
  TensorMap dict;
  for (const Slot& slot : slots_) {
    const detail::RuleInfo& rule = groups_[slot.group].rule->info();
    const size_t numbers = rule.progress_names.size();
    const double* own = slot.family < 0 ? rule.first_progress.data()
                                        : &progress[slot.family][static_cast<size_t>(slot.hyper_block) * numbers];
    for (size_t k = 0; k < numbers; ++k) {
      const Tensor value = empty({}, {.dtype = kF64, .device = kCPU});
      *value.data<double>() = own[k];
      dict[fmt::format("{}.{}", slot.name, rule.progress_names[k])] = value;
    }
    const FamilyKind kind = kind_of(slot);
    for (int k = 0; k < kind.arrays() && own[0] > 0; ++k) {
      const std::string key = state_key(slot, k);
      dict[key] = slot.states[k];
      if (kind.array_dtype(k) != kU8) continue;
      dict[key] =
          codes_of(slot.states[k], slot.layout.numel()).as_strided(slot.layout.size_list(), slot.layout.stride_list());
      dict[key + "_scale"] = scales_of(slot.states[k], slot.layout.numel());
      if (!slot.layout.is_contiguous()) dict[key + "_strides"] = strides_of(slot.layout);
    }
  }
  return dict;
}

std::vector<double> Stepper::load_slot(Slot& slot, StateReader& reader) const {
  const detail::RuleInfo& rule = groups_[slot.group].rule->info();
  std::vector<double> progress;
  for (size_t k = 0; k < rule.progress_names.size(); ++k) {
    const std::string key = fmt::format("{}.{}", slot.name, rule.progress_names[k]);
    progress.push_back(reader.find(key, {}, kF64).item<double>());
    require<FormatError>(std::isfinite(progress[k]) && (k > 0 || progress[k] >= 0),
                         "state '{}' is out of range; got {}; expected a finite number{}", key, progress[k],
                         k > 0 ? "" : " >= 0");
  }
  const FamilyKind kind = kind_of(slot);
  slot.family = slot.hyper_block = slot.entry = -1;
  slot.layout = slot.param.layout().is_dense() ? slot.param.layout() : Layout::contiguous(slot.param.sizes());
  for (Tensor& state : slot.states) state = Tensor();
  for (int k = 0; k < kind.arrays() && progress[0] > 0; ++k) {
    const std::string key = state_key(slot, k);
    const Tensor& value = reader.find(key, slot.param.sizes(), kind.array_dtype(k));
    slot.states[k] = kind.empty_state(k, slot.layout);
    if (kind.array_dtype(k) != kU8) {
      slot.states[k].copy_(value);
      continue;
    }
    const Tensor scales = scales_of(slot.states[k], slot.layout.numel());
    const Tensor& scale = reader.find(key + "_scale", scales.sizes(), kF32);
    reader.require_order(key + "_strides", slot.layout);
    codes_of(slot.states[k], slot.layout.numel())
        .as_strided(slot.layout.size_list(), slot.layout.stride_list())
        .copy_(value);
    scales.copy_(scale);
  }
  return progress;
}

void Stepper::load_state_dict(const TensorMap& dict) {
  const Running running(where_);
  const NoGrad quiet;
  // New slots and families replace the old ones when nothing can fail any more.
  StateReader reader(dict);
  std::vector<std::vector<double>> progress;
  std::vector<Slot> loaded = slots_;
  for (Slot& slot : loaded) progress.push_back(load_slot(slot, reader));
  reader.require_all_used();
  std::vector<Family> before;
  std::swap(families_, before);
  try {
    for (size_t s = 0; s < loaded.size(); ++s) {
      Slot& slot = loaded[s];
      if (progress[s][0] == 0) continue;
      slot.family = family_of(slot);
      Family& family = families_[slot.family];
      for (size_t other = 0; other < s && slot.hyper_block < 0; ++other)
        if (loaded[other].family == slot.family && loaded[other].group == slot.group && progress[other] == progress[s])
          slot.hyper_block = loaded[other].hyper_block;
      if (slot.hyper_block >= 0) continue;
      slot.hyper_block = family.blocks->add(*groups_[slot.group].rule, progress[s]);
      family.block_groups.push_back(slot.group);
    }
  } catch (...) {
    std::swap(families_, before);
    throw;
  }
  before.clear();  // waits for copies into the states that are released now
  slots_ = std::move(loaded);
  seen_ = 0;
}

}  // namespace lorry::optim
