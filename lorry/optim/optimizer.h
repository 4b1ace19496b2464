#pragma once

// Optimizers step named parameters by their gradients. Parameters come in groups, each with its own options.
//
// Dtypes: a 16-bit parameter is stepped in f32, any other in its own dtype. Its states have that dtype too, unless the
// group's Memory (memory.h) chooses fewer bits. A gradient may have any floating dtype; it is converted to the dtype of
// the computation. So an f64 gradient of an f32 parameter is rounded to f32 first.
//
// Invariant: a *family*, the parameters that share device, dtype, rule and memory options, steps wholly or not at all.
// A step checks everything and takes its memory first; an error there changes nothing. If a listener refuses one
// family, the others step all the same, and the error is thrown after that (stepper.h).

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

  /// Steps every parameter that has a gradient. Throws ShapeError or DeviceError naming a parameter whose gradient does
  /// not fit it, OutOfMemory.
  void step();
  /// The same, but multiplies the gradients by grad_factor first, a 0-d f64 on the device of the parameters. If it is
  /// NaN, nothing is written and the step does not count. If it is infinite, every gradient counts as NaN.
  void step(const Tensor& grad_factor);
  /// Norm, clip, unscale, skip, update and zeroing in one. Returns the common norm of the gradients, as they are
  /// converted, divided by the scale, before clipping: a 0-d f64 on the device; undefined if no option needs it. Throws
  /// ValueError for a negative max_norm, and if zero_grad is given and gradients share memory.
  Tensor step(const StepOptions& options);
  /// Releases all gradients. With set_to_none = false, sets them to zero instead.
  void zero_grad(bool set_to_none = true);

  /// Every parameter, in the order of the groups.
  std::vector<Tensor> parameters() const;
  int groups() const;
  /// The learning rate of a group: its setting "lr".
  double lr(int group = 0) const { return get(group, "lr"); }
  void set_lr(const Operand& lr) { set("lr", lr); }
  void set_lr(int group, const Operand& lr) { set(group, "lr", lr); }
  /// A number among a group's options, by its name: "weight_decay", "beta1", ... set() does not wait for the device.
  /// Flags cannot change, nor a number that decides on a state (momentum that was 0). Throws IndexError; ValueError for
  /// a name that is not in settings(group) or a number out of its domain.
  /// The value may be a tensor of one floating element, on the CPU or on the device of the parameters. Every step reads
  /// it until another value is set; get() waits for a GPU. A step throws ValueError for a value in host memory that is
  /// out of its domain. A value on a GPU is not checked. Throws DTypeError, ShapeError, DeviceError for other tensors.
  double get(int group, std::string_view name) const;
  void set(std::string_view name, const Operand& value);
  void set(int group, std::string_view name, const Operand& value);
  Tensor setting_tensor(int group, std::string_view name) const;  ///< the tensor that was set; undefined for a number
  std::vector<std::string> settings(int group = 0) const;

  /// All states, keyed "<parameter>.<state>", each in its dtype; the tensors are the live states, not copies. Waits for
  /// the device. A q8 state has two entries: its codes (u8, shaped as the parameter) and "<parameter>.<state>_scale"
  /// (f32, one for each 256 codes); a non-contiguous parameter also "<parameter>.<state>_strides". Settings such as
  /// learning rates are not included. States in pinned memory are written by later steps: wait for those, then read.
  TensorMap state_dict() const;
  /// Loads a state_dict of the same parameters. It must come from an optimizer with the same masters and types of
  /// states; their placement may differ. FormatError (an entry is missing or unexpected), ShapeError and DTypeError
  /// change nothing.
  void load_state_dict(const TensorMap& state);

  Execution execution() const;
  /// Bounds the bytes that the executions loop and foreach allocate for intermediates; 0: no bound. They step as many
  /// elements at a time as fit. Throws ValueError if 256 elements do not fit; so does a step.
  void set_memory_budget(int64_t bytes);
  int64_t memory_budget() const;
  /// The bytes of parameters, gradients and states, and what a step of each execution needs beside them. May be called
  /// before the first step. by_factor: of steps that clip, unscale or skip.
  MemoryReport memory_report(bool by_factor = false) const;
  /// How fused steps pass their lists to the device.
  Strategy strategy() const;
  void set_strategy(Strategy strategy);

 protected:
  /// `where` names the optimizer in messages.
  Optimizer(const char* where, Execution execution);
  /// Checks and adds the parameters of the next group. Throws ValueError for a setting out of its domain or a parameter
  /// that is listed twice or shares memory with another; GradError for one that needs no gradient or is no leaf;
  /// DTypeError for one that is not floating or does not suit `memory`.
  void add_group(const std::vector<NamedTensor>& params, std::shared_ptr<detail::AnyRule> rule, const Memory& memory);
  void require_parameters() const;  ///< throws ValueError if there are none

 private:
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace lorry::optim
