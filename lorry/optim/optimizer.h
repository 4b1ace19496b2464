#pragma once

// Optimizers step named parameters by their gradients. Parameters come in groups with options of their own; state is made at a
// parameter's first step, in f32 for f16 and bf16 parameters (their arithmetic is f32 too; only the stored parameter is rounded)
// and in the parameter's dtype otherwise. Invariant: gradients are checked, state is made and errors of earlier kernels are thrown
// before anything is written, so a fused step that throws leaves parameters, state and counters as they were. Parameters of one device
// and dtype are stepped together: should the second such list fail, for want of host memory, the first has made its step, counted, and
// the others none (a loop may still run out of memory between two parameters).
//
// Groups with `masters` keep an f32 copy of each 16-bit parameter, its master: made from the parameter at its first step, stepped in its
// place, and from then on what the parameter is a rounded copy of. A step that is too small for the parameter's 8 or 11 bits is so not
// lost. What is written to such a parameter between two steps is: the next one goes on from the master.

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/optim/execution.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

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

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Steps every parameter that has a gradient; the others, and their state, stay as they are. Throws ShapeError, DTypeError or
  /// DeviceError naming a parameter whose gradient does not fit it.
  void step();
  /// The same by gradients that are first multiplied by grad_factor, a 0-d f64 on the device of the parameters. When it is NaN, nothing
  /// is written and the step does not count. The host does not wait to know: it counts the step, and takes that back at the next one,
  /// or when somebody asks for the state.
  void step(const Tensor& grad_factor);
  /// Forgets all gradients or, with set_to_none false, fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// Every parameter, in the order of the groups.
  std::vector<Tensor> parameters() const;
  int groups() const { return static_cast<int>(group_count_); }
  /// The learning rate of a group. Throws IndexError.
  double lr(int group = 0) const;
  /// Sets it for every group, or for one. Throws ValueError when it is negative or not finite.
  void set_lr(double lr);
  void set_lr(int group, double lr);

  /// Everything that steps have accumulated, keyed "<parameter>.<state>", each in its dtype; the tensors are the live state, not
  /// copies of it. Learning rates and other options are the caller's to keep.
  TensorMap state_dict() const;
  /// Takes over a state_dict of the same parameters. Throws FormatError for a missing or unexpected entry, ShapeError or
  /// DTypeError for one of another kind; nothing is changed then.
  void load_state_dict(const TensorMap& state);

  Execution execution() const { return execution_; }

 protected:
  static constexpr int kMaxStates = 3, kMaxCounters = 3;

  /// One parameter and what it carries from step to step.
  struct Slot {
    std::string name;
    Tensor param;
    int group = 0;
    bool masters = false;                ///< that its group keeps them
    Tensor states[kMaxStates + 1];       ///< the rule's, then the master where there is one; undefined before the first step
    double counters[kMaxCounters] = {};  ///< the rule's progress; counters[0] counts steps
  };
  /// A slot of this step: param, grad, master and states have one layout without gaps. Without a master it is undefined.
  struct Work {
    Slot* slot;
    Tensor param, grad, master = {};
  };

  /// `where` names the optimizer in messages.
  Optimizer(const char* where, Execution execution);

  /// Checks and adds the parameters of the next group. Throws ValueError for a parameter that is listed twice or shares memory with
  /// another, GradError for one that needs no gradient or is no leaf, DTypeError unless floating.
  void add_group(const std::vector<NamedTensor>& params, bool masters);

  /// The names of a group's states and counters, in the order of Slot.
  virtual std::span<const char* const> state_names(int group) const = 0;
  virtual std::span<const char* const> counter_names() const = 0;
  /// The counters of a parameter that has never been stepped.
  virtual std::span<const double> first_counters() const = 0;
  virtual double& lr_of(int group) = 0;
  /// Runs the rule over all of `works`, which share device and dtype. grad_factor may be undefined.
  virtual void apply(std::span<const Work> works, const Tensor& grad_factor) = 0;

  const char* where() const { return where_; }

 private:
  /// A step whose factor is on its way to the host, and what was counted before it.
  struct Undecided {
    Tensor grad_factor;
    Event arrived;
    std::vector<std::array<double, kMaxCounters>> counters;
  };

  /// Takes back the last step if its factor was NaN.
  void settle() const;
  /// Sets a slot's counters as they were; a slot that had made no step loses its states.
  static void take_back(Slot& slot, const std::array<double, kMaxCounters>& counters);
  /// How many states a slot has: those of its rule, and the master.
  size_t state_count(const Slot& slot) const;
  const char* state_name(const Slot& slot, size_t k) const;
  Work prepare(Slot& slot, const Tensor& grad) const;
  void require_separate(const std::vector<NamedTensor>& added) const;

  const char* where_;
  Execution execution_;
  size_t group_count_ = 0;
  // The host may learn late what the device has done; nobody sees these before they agree with it.
  mutable std::vector<Slot> slots_;
  mutable std::optional<Undecided> undecided_;
};

}  // namespace lorry::optim
