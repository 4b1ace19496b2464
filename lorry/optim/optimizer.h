#pragma once

// Optimizers step named parameters by their gradients. Parameters come in groups with options of their own.
//
// A parameter's states are made at its first step: in f32 for f16 and bf16 parameters, whose arithmetic is f32 too, and
// otherwise in the parameter's dtype; the group's Memory (memory.h) may choose fewer bits or another place. A gradient
// has its parameter's dtype, or is f32 for a 16-bit parameter; gradients that are stepped together have one dtype.
//
// With Masters::f32 a 16-bit parameter is a rounded copy of its master, an f32 that is stepped in its place: small
// steps are not lost. Writes to the parameter between two steps are: the next step starts from the master. With
// Masters::split a bf16 parameter is the upper half of its master, and only the lower half is stored beside it.
//
// Invariant: a step is made wholly or not at all. One that throws leaves parameters, states and counters as they were;
// stepper.h says how, and names the two exceptions.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/optim/execution.h"
#include "lorry/optim/memory.h"
#include "lorry/optim/report.h"
#include "lorry/optim/step_options.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

namespace detail {
class AnyRule;
}  // namespace detail
using NamedTensor = std::pair<std::string, Tensor>;
using TensorMap = std::map<std::string, Tensor>;

/// Parameters that share options.
template <class Options>
struct Group {
  std::vector<NamedTensor> params;
  Options options;
};

/// Names for parameters that have none: "0", "1", ...
std::vector<NamedTensor> numbered(const std::vector<Tensor>& params);

class Stepper;

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Steps every parameter that has a gradient. Throws ShapeError, DTypeError or DeviceError naming a parameter whose
  /// gradient does not fit it, OutOfMemory.
  void step();
  /// The same by gradients that are first multiplied by grad_factor, a 0-d f64 on the device of the parameters. When it
  /// is NaN, nothing is written and the step does not count; when it is infinite, every gradient counts as NaN.
  void step(const Tensor& grad_factor);
  /// Norm, clip, unscale, skip, update and zeroing in one. Returns the common norm of the gradients, divided by the
  /// scale, before clipping: a 0-d f64 on the device; undefined when no option needs it. Throws ValueError for a
  /// negative max_norm, and where zero_grad is given and gradients share memory.
  Tensor step(const StepOptions& options);
  /// Releases all gradients. With set_to_none = false, sets them to zero instead.
  void zero_grad(bool set_to_none = true);

  /// Every parameter, in the order of the groups.
  std::vector<Tensor> parameters() const;
  int groups() const;
  /// The learning rate of a group: the number "lr" of its options. Set for every group or for one as by set().
  double lr(int group = 0) const { return get(group, "lr"); }
  void set_lr(const Operand& lr) { set("lr", lr); }
  void set_lr(int group, const Operand& lr) { set(group, "lr", lr); }
  /// Any number among a group's options, by its name: "weight_decay", "beta1", ... What is set reaches the device
  /// without a wait. Flags are fixed, and so is a number that has no effect without a state (momentum that was 0).
  /// Throws IndexError; ValueError for a name that is none of settings(group) and for a number out of its domain.
  /// A tensor of one floating element, on the CPU or beside the parameters, is read by every step until something else
  /// is set; get() waits for a GPU. A step throws ValueError for a value in host memory out of its domain; a GPU's is
  /// not checked: the step computes with it. Throws DTypeError, ShapeError, DeviceError for another tensor.
  double get(int group, std::string_view name) const;
  void set(std::string_view name, const Operand& value);
  void set(int group, std::string_view name, const Operand& value);
  Tensor setting_tensor(int group, std::string_view name) const;  ///< the tensor that was set; undefined for a number
  std::vector<std::string> settings(int group = 0) const;

  /// All states, keyed "<parameter>.<state>", each in its dtype; the tensors are the live states, not copies. Waits for
  /// the device. A q8 state is two: its codes, u8 and shaped as the parameter, and "<parameter>.<state>_scale", f32,
  /// one for each 256 of them; of a parameter that is not contiguous also "<parameter>.<state>_strides". Settings such
  /// as learning rates are not part of it. Later steps write states in pinned memory: wait for them before reading.
  TensorMap state_dict() const;
  /// Loads a state_dict of the same parameters from an optimizer with the same masters and types of states; their
  /// placement may differ. FormatError (an entry is missing or unexpected), ShapeError, DTypeError change nothing.
  void load_state_dict(const TensorMap& state);

  Execution execution() const;
  /// Bounds the bytes that steps of the executions loop and foreach allocate for intermediates; 0: no bound. They step
  /// as many elements as that allows at a time. Throws ValueError for less than 256 elements need; so does a step.
  void set_memory_budget(int64_t bytes);
  int64_t memory_budget() const;
  /// The bytes of parameters, gradients and states, and those that a step takes beside them in each execution; also
  /// before the first step. by_factor: of steps that clip, unscale or skip.
  MemoryReport memory_report(bool by_factor = false) const;
  /// How fused steps pass their lists to the device.
  Strategy strategy() const;
  void set_strategy(Strategy strategy);

 protected:
  /// `where` names the optimizer in messages.
  Optimizer(const char* where, Execution execution);
  /// Checks and adds the parameters of the next group. Throws ValueError for a setting out of its domain, a parameter
  /// that is listed twice or shares memory with another; GradError for one that needs no gradient or is no leaf;
  /// DTypeError unless floating and of a type that `memory` is for.
  void add_group(const std::vector<NamedTensor>& params, std::shared_ptr<detail::AnyRule> rule, const Memory& memory);
  void require_parameters() const;  ///< throws ValueError where there are none

 private:
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace lorry::optim
