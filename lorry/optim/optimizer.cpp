#include "lorry/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/bell.h"
#include "lorry/device/device.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/door.h"

namespace lorry::optim {
namespace {

DType state_dtype(DType param) { return param == kF64 ? kF64 : kF32; }

bool has_master(bool masters, DType param) { return masters && (param == kF16 || param == kBF16); }

/// True when equal offsets in both tensors hold the same element: equal sizes, and equal strides where they matter.
bool same_order(const Layout& a, const Layout& b) {
  for (int i = 0; i < a.rank; ++i)
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

Tensor scalar(double value) {
  const Tensor x = empty({}, {.dtype = kF64, .device = kCPU});
  *x.data<double>() = value;
  return x;
}

}  // namespace

std::vector<NamedTensor> numbered(const std::vector<Tensor>& params) {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < params.size(); ++i) named.emplace_back(std::to_string(i), params[i]);
  return named;
}

Optimizer::Optimizer(const char* where, Execution execution) : where_(where), execution_(execution == Execution::automatic ? Execution::fused : execution) {
  require<ValueError>(execution_ == Execution::fused || execution_ == Execution::loop,
                      "{}: execution '{}' is not part of this build; expected automatic, loop or fused", where, optim::name(execution));
}

// ---- groups ----------------------------------------------------------------------------------------------------------

void Optimizer::add_group(const std::vector<NamedTensor>& params, bool masters) {
  std::set<std::string_view> names;
  for (const Slot& slot : slots_) names.insert(slot.name);
  for (const auto& [name, param] : params) {
    require<ValueError>(param.defined(), "{}: parameter '{}' is an undefined tensor; expected a tensor", where_, name);
    require<ValueError>(names.insert(name).second, "{}: parameter '{}' is listed twice", where_, name);
    require<DTypeError>(is_floating(param.dtype()), "{}: parameter '{}' is not floating; got {}", where_, name, param);
    require<GradError>(param.requires_grad(), "{}: parameter '{}' does not require a gradient; got {}; call requires_grad_() first", where_, name, param);
    require<GradError>(param.is_leaf(), "{}: parameter '{}' is not a leaf; got {} made by {}; optimize the tensors it was made from", where_, name, param,
                       param.grad_fn());
    door::require_writable(param, where_);
  }
  require_separate(params);
  for (const auto& [name, param] : params) {
    Slot& slot = slots_.emplace_back();
    slot.name = name;
    slot.param = param;
    slot.group = static_cast<int>(group_count_);
    slot.masters = masters;
    std::ranges::copy(first_counters(), slot.counters);
  }
  ++group_count_;
}

void Optimizer::require_separate(const std::vector<NamedTensor>& added) const {
  struct Span {
    const char *begin, *end;
    const std::string* name;
  };
  std::vector<Span> spans;
  const auto add = [&](const std::string& name, const Tensor& x) {
    const auto* begin = static_cast<const char*>(x.data_ptr());
    if (x.numel() > 0) spans.push_back({begin, begin + x.layout().extent() * size_of(x.dtype()), &name});
  };
  for (const Slot& slot : slots_) add(slot.name, slot.param);
  for (const auto& [name, param] : added) add(name, param);
  std::ranges::sort(spans, {}, &Span::begin);
  for (size_t i = 1; i < spans.size(); ++i)
    require<ValueError>(spans[i - 1].end <= spans[i].begin, "{}: parameters '{}' and '{}' share memory; list each tensor once", where_,
                        std::min(*spans[i - 1].name, *spans[i].name), std::max(*spans[i - 1].name, *spans[i].name));
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> parameters;
  for (const Slot& slot : slots_) parameters.push_back(slot.param);
  return parameters;
}

double Optimizer::lr(int group) const {
  require<IndexError>(group >= 0 && group < groups(), "{}: no such group; got {}; expected 0 to {}", where_, group, groups() - 1);
  return const_cast<Optimizer*>(this)->lr_of(group);
}

void Optimizer::set_lr(double lr) {
  for (int group = 0; group < groups(); ++group) set_lr(group, lr);
}

void Optimizer::set_lr(int group, double lr) {
  require<IndexError>(group >= 0 && group < groups(), "{}: no such group; got {}; expected 0 to {}", where_, group, groups() - 1);
  require<ValueError>(lr >= 0 && std::isfinite(lr), "{}: lr is out of range; got {}; expected a finite number >= 0", where_, lr);
  lr_of(group) = lr;
}

// ---- steps -----------------------------------------------------------------------------------------------------------

Optimizer::Work Optimizer::prepare(Slot& slot, const Tensor& grad) const {
  Tensor param = slot.param.detach();
  require<ShapeError>(grad.sizes() == param.sizes(), "{}: the gradient of '{}' has another shape; got gradient: {}, parameter: {}", where_, slot.name, grad,
                      param);
  require<DTypeError>(grad.dtype() == param.dtype(), "{}: the gradient of '{}' has another dtype; got gradient: {}, parameter: {}", where_, slot.name, grad,
                      param);
  require<DeviceError>(grad.device() == param.device(), "{}: the gradient of '{}' is on another device; got gradient: {}, parameter: {}", where_, slot.name,
                       grad, param);
  door::require_writable(slot.param, where_);
  Tensor aligned = grad.detach();
  if (!param.layout().is_dense()) {
    bell::ring(bell::Event::hidden_copy, where_, "a parameter with gaps in its memory is stepped in a copy");
    param = param.contiguous();
  }
  if (!same_order(param.layout(), aligned.layout())) {
    bell::ring(bell::Event::hidden_copy, where_, "a gradient is copied into the layout of its parameter");
    aligned = empty_like(param).copy_(aligned);
  }
  return {&slot, param, aligned};
}

size_t Optimizer::state_count(const Slot& slot) const { return state_names(slot.group).size() + (has_master(slot.masters, slot.param.dtype()) ? 1 : 0); }

const char* Optimizer::state_name(const Slot& slot, size_t k) const {
  const auto names = state_names(slot.group);
  return k < names.size() ? names[k] : "master";
}

void Optimizer::step() { step(Tensor()); }

void Optimizer::step(const Tensor& grad_factor) {
  const NoGrad quiet;
  settle();
  std::vector<Work> works;
  for (Slot& slot : slots_)
    if (const Tensor grad = slot.param.grad(); grad.defined()) works.push_back(prepare(slot, grad));
  if (grad_factor.defined()) {
    require<ShapeError>(grad_factor.dim() == 0, "{}: grad_factor has a shape; got {}; expected a 0-d f64", where_, grad_factor);
    require<DTypeError>(grad_factor.dtype() == kF64, "{}: grad_factor has another dtype; got {}; expected a 0-d f64", where_, grad_factor);
    for (const Work& work : works) require_same_device(work.param, grad_factor, where_);
  }
  // New states are made aside first: when memory runs out here, no parameter has moved.
  std::vector<std::pair<Tensor*, Tensor>> made;
  for (const Work& work : works)
    for (size_t k = 0; k < state_count(*work.slot); ++k) {
      Tensor& state = work.slot->states[k];
      const DType dtype = state_dtype(work.param.dtype());
      if (!state.defined()) {
        const bool master = k == state_names(work.slot->group).size();
        made.emplace_back(&state, master ? empty_like(work.param, dtype).copy_(work.param) : empty_like(work.param, dtype).zero_());
        continue;
      }
      require<ShapeError>(state.sizes() == work.param.sizes() && state.dtype() == dtype,
                          "{}: parameter '{}' has changed since its last step; got {} with a state of {}; make a new optimizer", where_, work.slot->name,
                          work.param, state);
      if (!same_order(state.layout(), work.param.layout())) made.emplace_back(&state, empty_like(work.param, state.dtype()).copy_(state));
    }
  std::optional<Undecided> undecided;
  if (grad_factor.defined()) {
    const Device device = grad_factor.device();
    undecided = Undecided{device.is_cpu() ? grad_factor.clone() : grad_factor.to(kCPU, /*non_blocking=*/true), Event(device), {}};
    undecided->arrived.record(current_stream(device));
    for (const Slot& slot : slots_) undecided->counters.push_back(std::to_array(slot.counters));
  }
  std::ranges::stable_sort(works, {}, [](const Work& w) { return std::tuple(w.param.device().type, w.param.device().index, w.param.dtype()); });
  std::vector<std::array<double, kMaxCounters>> before;
  for (const Work& work : works) before.push_back(std::to_array(work.slot->counters));
  for (const Work& work : works) device::throw_reported(work.param.device());

  // From here on the step is made: what other kernels report does not stop it half way.
  const device::ReportsWait scope;
  for (auto& [state, tensor] : made) *state = tensor;
  for (Work& work : works)
    if (const size_t own = state_names(work.slot->group).size(); state_count(*work.slot) > own) work.master = work.slot->states[own];
  undecided_ = std::move(undecided);
  for (size_t first = 0, last = 0; first < works.size(); first = last) {
    while (last < works.size() && works[last].param.device() == works[first].param.device() && works[last].param.dtype() == works[first].param.dtype()) ++last;
    const std::span list = std::span(works).subspan(first, last - first);
    try {
      apply(list, grad_factor);
    } catch (...) {
      for (size_t i = first; i < works.size(); ++i) take_back(*works[i].slot, before[i]);
      throw;
    }
    for (const Work& work : list) {
      if (!work.slot->param.layout().is_dense()) work.slot->param.copy_(work.param);
      work.slot->param.storage().written_by(where_);
    }
  }
}

void Optimizer::take_back(Slot& slot, const std::array<double, kMaxCounters>& counters) {
  std::ranges::copy(counters, slot.counters);
  if (slot.counters[0] == 0) std::ranges::fill(slot.states, Tensor());
}

void Optimizer::settle() const {
  if (!undecided_) return;
  undecided_->arrived.synchronize();
  if (std::isnan(undecided_->grad_factor.item<double>()))
    for (size_t i = 0; i < undecided_->counters.size(); ++i) take_back(slots_[i], undecided_->counters[i]);
  undecided_.reset();
}

void Optimizer::zero_grad(bool set_to_none) {
  const NoGrad quiet;
  for (const Slot& slot : slots_) {
    const Tensor grad = slot.param.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      slot.param.set_grad({});
    } else {
      slot.param.set_grad(grad.detach().zero_());
    }
  }
}

// ---- state dictionaries ----------------------------------------------------------------------------------------------

TensorMap Optimizer::state_dict() const {
  settle();
  TensorMap dict;
  for (const Slot& slot : slots_) {
    const auto counters = counter_names();
    for (size_t k = 0; k < counters.size(); ++k) dict[fmt::format("{}.{}", slot.name, counters[k])] = scalar(slot.counters[k]);
    for (size_t k = 0; k < state_count(slot); ++k)
      if (slot.states[k].defined()) dict[fmt::format("{}.{}", slot.name, state_name(slot, k))] = slot.states[k];
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
  std::vector<Slot> loaded = slots_;
  for (Slot& slot : loaded) {
    const auto counters = counter_names();
    for (size_t k = 0; k < counters.size(); ++k) {
      const std::string key = fmt::format("{}.{}", slot.name, counters[k]);
      const Tensor& value = find(key);
      check(key, value, {}, kF64);
      slot.counters[k] = value.item<double>();
      require<FormatError>(slot.counters[k] >= 0 && std::isfinite(slot.counters[k]), "{}: state '{}' is out of range; got {}; expected a finite number >= 0",
                           where_, key, slot.counters[k]);
    }
    std::ranges::fill(slot.states, Tensor());
    for (size_t k = 0; k < state_count(slot) && slot.counters[0] > 0; ++k) {
      const std::string key = fmt::format("{}.{}", slot.name, state_name(slot, k));
      const Tensor& value = find(key);
      check(key, value, slot.param.sizes(), state_dtype(slot.param.dtype()));
      slot.states[k] = empty_like(slot.param, value.dtype()).copy_(value);
    }
  }
  for (const auto& [key, value] : dict)
    require<FormatError>(used.contains(key), "{}: state '{}' is unexpected; load the state of the same optimizer and model", where_, key);
  slots_ = std::move(loaded);
  undecided_.reset();
}

}  // namespace lorry::optim
