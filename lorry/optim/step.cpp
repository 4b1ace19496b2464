// How an optimizer makes a step: it plans (plan.cpp), allocates the memory that all families need, and steps them.

#include <algorithm>
#include <cmath>
#include <exception>

#include "lorry/autograd/grad_mode.h"
#include "lorry/device/device.h"
#include "lorry/foreach/run_row.h"
#include "lorry/kernels/backend.h"
#include "lorry/kernels/list.h"
#include "lorry/kernels/optim.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/optim/execution/eager_family.h"
#include "lorry/optim/execution/fused.h"
#include "lorry/optim/execution/streamed.h"
#include "lorry/optim/run_row.h"
#include "lorry/optim/step_plan.h"
#include "lorry/optim/stepper.h"
#include "lorry/trace/recorder.h"

namespace lorry::optim {

void Stepper::step() { step(Tensor()); }

void Stepper::step(const Tensor& grad_factor) {
  const Running running(where_);
  const NoGrad quiet;
  require_parameters();
  read_settings();
  refresh();
  plan_->fill_copies();
  if (grad_factor.defined()) {
    require<ShapeError>(grad_factor.dim() == 0, "grad_factor has a shape; got {}; expected a 0-d f64", grad_factor);
    require<DTypeError>(grad_factor.dtype() == kF64, "grad_factor has another dtype; got {}; expected a 0-d f64",
                        grad_factor);
    for (const Family& family : families_)
      if (!family.slots.empty()) require_same_device(slots_[family.slots[0]].param, grad_factor);
  }
  run(grad_factor.defined() ? Factors{grad_factor} : Factors(), false);
}

Tensor Stepper::step(const StepOptions& options) {
  const Running running(where_);
  const NoGrad quiet;
  require<ValueError>(options.max_norm >= 0, "max_norm is out of range; got {}; expected a number >= 0",
                      options.max_norm);
  require_parameters();
  read_settings();
  refresh();
  if (options.zero_grad) require_separate_gradients();
  plan_->fill_copies();
  Tensor total;
  Factors factors;
  if (std::isfinite(options.max_norm) || options.skip_nonfinite || options.scale.defined())
    total = clip_factors(options, factors);
  run(factors, options.zero_grad);
  return total;
}

namespace {

const kernels::ListNormKernels& norms_of(Device device) { return *kernels::backend(device).list_norm; }

/// Makes a call with one or two 0-d results, which listeners hear.
void announce_call(Op op, std::span<const Tensor> inputs, std::span<const door::Attribute> attributes,
                   std::span<const Tensor> results, const std::function<void()>& call) {
  if (!door::heard(door::Inputs({}))) return call();
  door::Announced announced(op, false, inputs, nullptr, attributes, foreach::run);
  call();
  announced.finish(results);
}

Tensor new_number(Device device) { return empty({}, {.dtype = kF64, .device = device}); }

}  // namespace

/// The gradients on a device: as lists for kernels, and if somebody listens also as tensors.
struct Stepper::DeviceGradients {
  Device device;
  std::vector<const kernels::List*> lists = {};
  std::vector<Tensor> tensors = {};
};

std::vector<Stepper::DeviceGradients> Stepper::gradients_by_device() const {
  std::vector<DeviceGradients> devices;
  for (const Family& family : families_) {
    if (family.slots.empty()) continue;
    auto own = std::ranges::find(devices, family.device, &DeviceGradients::device);
    if (own == devices.end()) own = devices.insert(own, {family.device});
    own->lists.push_back(&plan_->list(static_cast<size_t>(family.in_plan), gradients_));
    if (!door::heard(door::Inputs({}))) continue;
    for (const int s : family.slots) own->tensors.push_back(gradient_of(slots_[static_cast<size_t>(s)]));
  }
  if (devices.empty()) devices.push_back({default_device()});
  return devices;
}

Tensor Stepper::gradient_of(const Slot& slot) {
  return slot.grad_copy.defined() ? slot.grad_copy : slot.gradient->grad();
}

/// Returns the norm of all gradients, and adds the factor of the gradients on each device: foreach::clip_factor over
/// the lists of the step. With several devices, each sends its sum of squares to the first, which sends the factor
/// back.
Tensor Stepper::clip_factors(const StepOptions& options, Factors& factors) const {
  const std::vector<DeviceGradients> devices = gradients_by_device();
  const Device first = devices[0].device;
  if (const Tensor& scale = options.scale; scale.defined()) {
    require<DTypeError>(scale.dim() == 0 && scale.dtype() == kF64,
                        "scale is of another kind; got {}; expected a 0-d f64", scale);
    require<DeviceError>(scale.device() == first, "scale is on another device than the parameters; got {}; expected {}",
                         scale, first);
  }
  const Tensor total = new_number(first), factor = new_number(first);
  const kernels::NormEnd end{.max_norm = options.max_norm,
                             .scale = doubles(options.scale),
                             .skip_nonfinite = options.skip_nonfinite,
                             .factor = doubles(factor)};
  const std::array<door::Attribute, 3> attributes{2.0, options.max_norm, options.skip_nonfinite};
  const Tensor results[] = {total, factor};
  if (devices.size() == 1) {
    std::vector<Tensor> inputs = devices[0].tensors;
    inputs.push_back(options.scale);
    announce_call(Op::clip_factor, inputs, attributes, results, [&] {
      norms_of(first).norm({.lists = devices[0].lists, .total = doubles(total), .end = end}, current_stream(first));
    });
  } else {
    Tensor sum;
    for (const DeviceGradients& own : devices) {
      const Tensor part = new_number(own.device);
      announce_call(Op::power_sum, own.tensors, std::array{door::Attribute(2.0)}, {&part, 1}, [&] {
        norms_of(own.device).norm({.lists = own.lists, .sum = doubles(part), .end = {}}, current_stream(own.device));
      });
      sum = sum.defined() ? sum.add(part.to(first)) : part;
    }
    announce_call(Op::finish_norm, std::array{sum, options.scale}, attributes, results, [&] {
      norms_of(first).finish({.sum = doubles(sum), .total = doubles(total), .end = end}, current_stream(first));
    });
  }
  for (const DeviceGradients& own : devices) factors.push_back(factor.to(own.device));
  return total;
}

namespace {

/// The factor on a device; undefined if there are no factors.
Tensor factor_on(Device device, const std::vector<Tensor>& factors) {
  const auto own = std::ranges::find_if(factors, [&](const Tensor& factor) { return factor.device() == device; });
  return own == factors.end() ? Tensor() : *own;
}

}  // namespace

void Stepper::run(const Factors& factors, bool zero_grads) {
  const Running running(where_);
  for (const Family& family : families_)
    if (!family.slots.empty()) device::throw_reported(family.device);
  if (zero_grads)
    for (const int s : guarded_) door::require_writable(slots_[static_cast<size_t>(s)].param.grad());

  // All memory is allocated before anything is written.
  for (Family& family : families_) {
    if (family.slots.empty()) continue;
    family.numbers = numbers_of(family);
    prepare(family, call_of(family, factor_on(family.device, factors), zero_grads));
  }
  const std::vector<StepBuffers> buffers = allocate_buffers();

  // From here on families step. Versions also count a step that fails. Errors that other kernels report wait.
  count_writes(zero_grads);
  const device::DeferReports deferred;
  std::exception_ptr error;
  for (Family& family : families_) {
    if (family.slots.empty()) continue;
    try {
      step_family(family, factor_on(family.device, factors), zero_grads);
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

StepContext Stepper::context() const {
  return {.where = where_, .execution = execution_, .budget = budget_, .groups = groups_, .slots = slots_};
}

kernels::StepCall Stepper::call_of(const Family& family, const Tensor& grad_factor, bool zero_grads) const {
  return {.list = list(family),
          .first_block = 0,
          .block_count = family.blocks->count(),
          .masters = family.master_kind(),
          .zero_grads = zero_grads,
          .grad_factor = doubles(grad_factor),
          .seed = family.memory.seed};
}

void Stepper::prepare(Family& family, const kernels::StepCall& call) const {
  if (family.step == nullptr) {
    if (steps_eagerly())
      family.step = std::make_unique<EagerFamily>();
    else if (family.streams())
      family.step = std::make_unique<StreamedStep>(call);
    else
      family.step = std::make_unique<FusedStep>();
  }
  family.step->prepare(family, context(), call, current_stream(family.device));
}

std::vector<StepBuffers> Stepper::allocate_buffers() {
  std::vector<StepBuffers> all;
  std::vector<Device> devices;
  const auto bytes_of = [](const Family& family) {
    return family.slots.empty() ? std::nullopt : family.step->buffer_bytes();
  };
  for (const Family& first : families_) {
    if (!bytes_of(first) || std::ranges::find(devices, first.device) != devices.end()) continue;
    int64_t bytes = 0;
    for (const Family& family : families_)
      if (family.device == first.device) bytes = std::max(bytes, bytes_of(family).value_or(0));
    devices.push_back(first.device);
    all.push_back({empty({kNumberBytes}, {kU8, first.device}), empty({bytes}, {kU8, first.device})});
    for (const Family& family : families_)
      if (family.device == first.device && bytes_of(family)) family.step->take_buffers(all.back());
  }
  return all;
}

void Stepper::count_writes(bool zero_grads) {
  epoch_->written_by(where_);
  for (Storage* const storage : shared_storages_) storage->written_by(where_);
  if (!zero_grads) return;
  grad_epoch_->written_by(where_);
  for (Storage* const storage : shared_grad_storages_) storage->written_by(where_);
}

/// Steps a family as one call. Rethrows the error of a listener: one that refuses the call leaves the family unstepped,
/// one after the call is thrown when copies are written back.
void Stepper::step_family(Family& family, const Tensor& grad_factor, bool zero_grads) {
  bool stepped = false;
  const auto step = [&] {
    const Stream stream = current_stream(family.device);
    if (!family.numbers.empty()) family.blocks->set_numbers(family.numbers, stream);
    family.step->run(family, call_of(family, grad_factor, zero_grads), stream);
    stepped = true;
  };
  if (!door::heard(door::Inputs({}))) [[likely]] {
    step();
    return write_back_copies(family, zero_grads);
  }
  std::exception_ptr error;
  try {
    announce(family, grad_factor, zero_grads, step);
  } catch (...) {
    if (!stepped) throw;
    error = std::current_exception();
  }
  try {
    write_back_copies(family, zero_grads);
  } catch (...) {
    if (error == nullptr) error = std::current_exception();
    const ModeScope unheard(0, kListenerModes);  // the states have moved, and so must the parameters
    write_back_copies(family, zero_grads);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void Stepper::write_back_copies(const Family& family, bool zero_grads) {
  if (!plan_->has_copies()) return;
  plan_->write_back(kParam, static_cast<uint32_t>(family.in_plan));
  for (const int s : family.slots) {
    const Slot& slot = slots_[static_cast<size_t>(s)];
    if (slot.dense_param.defined()) slot.param.storage().written_by(where_);
    if (slot.grad_copy.defined() && zero_grads) slot.grad_source.zero_();
  }
}

/// Makes the step of a family as a call that listeners hear (ops/dispatch/operators.def says with which arguments).
void Stepper::announce(const Family& family, const Tensor& grad_factor, bool zero_grads,
                       const std::function<void()>& step) const {
  std::vector<Tensor> written, grads, setting_tensors;
  std::vector<int64_t> entries, numbers;
  const auto slot = [&](size_t i) -> const Slot& { return slots_[static_cast<size_t>(family.slots[i])]; };
  for (size_t i = 0; i < family.slots.size(); ++i) {
    const Slot& own = slot(i);
    written.push_back(own.dense_param.defined() ? own.dense_param : own.param);
    grads.push_back(gradient_of(own));
    entries.push_back(own.hyper_block);
    entries.push_back(family.slots[i]);
  }
  for (int k = 0; k < family.arrays(); ++k)
    for (size_t i = 0; i < family.slots.size(); ++i) written.push_back(slot(i).states[k]);
  written.push_back(family.blocks->memory());
  if (zero_grads) written.insert(written.end(), grads.begin(), grads.end());
  for (size_t c = 0; c < family.block_groups.size(); ++c)
    for (const auto& [k, tensor] : groups_[static_cast<size_t>(family.block_groups[c])].tensors) {
      setting_tensors.push_back(tensor);
      numbers.push_back(static_cast<int64_t>(c));
      numbers.push_back(k);
    }
  std::vector<door::Input> inputs;
  for (const Tensor& x : written) inputs.emplace_back(&x);
  if (!zero_grads)
    for (const Tensor& x : grads) inputs.emplace_back(&x);
  inputs.emplace_back(&grad_factor);
  for (const Tensor& x : setting_tensors) inputs.emplace_back(&x);
  const door::Attribute attributes[] = {std::string(family.rule->name),
                                        int64_t{detail::rule_number(*family.rule)},
                                        static_cast<int64_t>(family.slots.size()),
                                        static_cast<int64_t>(family.master_kind()),
                                        std::move(entries),
                                        int64_t{family.blocks->count()},
                                        static_cast<int64_t>(family.memory.seed),
                                        zero_grads,
                                        std::move(numbers)};
  const detail::AnyRule& rule = *groups_[static_cast<size_t>(family.block_groups[0])].rule;
  if (!detail::can_run_again(rule, *family.blocks, family.device))
    trace::Recorder::refuse("the rule of the optimizer is a user's own, without code for its device");
  door::Announced announced(Op::optimizer_step, true, std::span<const door::Input>(inputs), written, attributes,
                            optim::run);
  step();
  announced.finish();
}

}  // namespace lorry::optim
