#pragma once

// Optimizers step named parameters by their gradients. Parameters come in groups with options of their own; state is
// made at a parameter's first step, in f32 for f16 and bf16 parameters (their arithmetic is f32 too; only what is
// stored is rounded) and in the parameter's dtype otherwise, unless the group's Memory (memory.h) has it stored in
// fewer bits, or elsewhere. A gradient has its parameter's dtype, or is f32 for a parameter of 16 bits; gradients that
// are stepped together have one dtype.
//
// Invariant: a step is made wholly or not at all: one that throws leaves parameters, state and counters as they were.
// stepper.h says how, and what the two exceptions are.
//
// Groups with Masters::f32 keep an f32 copy of each 16-bit parameter, its master: made from the parameter at its first
// step, stepped in its place, and from then on what the parameter is a rounded copy of. A step that is too small for
// the parameter's 8 or 11 bits is so not lost. What is written to such a parameter between two steps is: the next one
// goes on from the master. With Masters::split a bf16 parameter is itself the upper half of its master, and what is
// kept is the lower half: 2 bytes instead of 4.

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/optim/execution.h"
#include "lorry/optim/memory.h"
#include "lorry/optim/report.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

struct RuleTraits;

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

/// What a step does beside the update, in the same launches and without waiting for the device.
struct StepOptions {
  /// Gradients are scaled together to have at most this common norm. Where it is NaN, so are then all gradients of the
  /// step, as in PyTorch.
  double max_norm = std::numeric_limits<double>::infinity();
  /// when the norm is infinite or NaN, parameters and state stay as they are and the step does not count
  bool skip_nonfinite = false;
  bool zero_grad = false;  ///< gradients are filled with zeros afterwards, also those of a step that was left out
  /// the loss's: gradients are divided by it first. A 0-d f64 on the parameters' device
  Tensor scale = {};
};

class Stepper;

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Steps every parameter that has a gradient; the others, and their state, stay as they are. Throws ShapeError,
  /// DTypeError or DeviceError naming a parameter whose gradient does not fit it, OutOfMemory.
  void step();
  /// The same by gradients that are first multiplied by grad_factor, a 0-d f64 on the device of the parameters. When it
  /// is NaN, nothing is written and the step does not count; when it is infinite, every gradient counts as NaN.
  void step(const Tensor& grad_factor);
  /// Norm, clip, unscale, skip, update and zeroing in one. Returns the common norm of the gradients, divided by the
  /// scale, before clipping: a 0-d f64 on the device; undefined when no option needs it. Gradients are only read, but
  /// for zero_grad. All parameters are on one device. Throws ValueError for a negative max_norm, and for gradients to
  /// be zeroed that share memory.
  Tensor step(const StepOptions& options);
  /// Forgets all gradients or, with set_to_none false, fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// Every parameter, in the order of the groups.
  std::vector<Tensor> parameters() const;
  int groups() const;
  /// The learning rate of a group. Throws IndexError.
  double lr(int group = 0) const;
  /// Sets it for every group, or for one, from the next step on. Throws ValueError when it is negative or not finite.
  void set_lr(double lr);
  void set_lr(int group, double lr);

  /// Everything that steps have accumulated, keyed "<parameter>.<state>", each in its dtype; the tensors are the live
  /// state, not copies of it. A state in 8 bits is two: its codes, u8 and as large as the parameter, and
  /// "<parameter>.<state>_scale", f32, the scales of its blocks of 256; for a parameter that is not contiguous also
  /// "<parameter>.<state>_strides", since blocks follow its memory. Learning rates and other options are the caller's
  /// to keep. Waits for the device. States in pinned memory are the host's to read, and written by later steps: wait
  /// for those too.
  TensorMap state_dict() const;
  /// Takes over a state_dict of the same parameters from an optimizer with the same masters and types of states; where
  /// they lie may differ. Throws FormatError for a missing or unexpected entry, ShapeError or DTypeError for one of
  /// another kind; nothing is changed then.
  void load_state_dict(const TensorMap& state);

  Execution execution() const;
  /// Bounds what steps of the executions loop and foreach take from the allocator beside parameters, gradients and
  /// states, in bytes; 0: no bound. They step as many elements at a time as that lets, a multiple of 256 of each
  /// parameter that they part, and give the same bits. Fused steps take nothing, but for the chunks of states in pinned
  /// memory, and for 16-bit parameters on a GPU with f32 gradients: there are no fused kernels for these. They are
  /// stepped as by foreach, within this bound or, where it is 0, within 64 MB; a warning event says so once for each
  /// layout of the gradients. Throws ValueError for fewer bytes than 256 elements take; so does a step whose gradients
  /// need more.
  void set_memory_budget(int64_t bytes);
  int64_t memory_budget() const;
  /// What parameters, gradients and states take, and what a step takes beside them in each execution; also before the
  /// first step. by_factor: of steps that clip, unscale or skip.
  MemoryReport memory_report(bool by_factor = false) const;
  /// How fused steps pass their lists to the device.
  Strategy strategy() const;
  void set_strategy(Strategy strategy);

 protected:
  /// `where` names the optimizer in messages.
  Optimizer(const char* where, Execution execution);

  /// Checks and adds the parameters of the next group; `settings` are those of the rule. Throws ValueError for a
  /// parameter that is listed twice or shares memory with another, GradError for one that needs no gradient or is no
  /// leaf, DTypeError unless floating and of a type that `memory` is for.
  void add_group(const std::vector<NamedTensor>& params, const RuleTraits& rule, const void* settings,
                 const Memory& memory);
  /// Throws ValueError where there are no parameters to step.
  void require_parameters() const;

 private:
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace lorry::optim
