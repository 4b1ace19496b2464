#pragma once

// Optimizers step named parameters by their gradients. Parameters come in groups with options of their own; state is
// made at a parameter's first step, in f32 for f16 and bf16 parameters (their arithmetic is f32 too; only what is
// stored is rounded) and in the parameter's dtype otherwise, unless the group's Memory (memory.h) has it stored in
// fewer bits, or elsewhere. A gradient has its parameter's dtype, or is f32 for a parameter of 16 bits; gradients that
// are stepped together have one dtype.
//
// Invariant: a step is made wholly or not at all. Gradients are checked, state is made, errors of earlier kernels are
// thrown and all memory of the device is taken before anything is written: a step that throws leaves parameters, state
// and counters as they were. (Two exceptions: kernels of a GPU lay out lists in host memory as they go, and where a
// user's rule has no code for the GPU the host moves its clocks on.) A family is the parameters that share device,
// dtype, rule and Memory. It is stepped together.
//
// A step that finds everything where it was costs the host a few microseconds, however many parameters there are: what
// does not change between steps, the lists, is kept (kernels/list.h), and looked through again only when a gradient
// somewhere was replaced. Learning rates and step counts lie on the device (formula/rule.h): the host learns of them
// when it asks for the state.
//
// Groups with Masters::f32 keep an f32 copy of each 16-bit parameter, its master: made from the parameter at its first
// step, stepped in its place, and from then on what the parameter is a rounded copy of. A step that is too small for
// the parameter's 8 or 11 bits is so not lost. What is written to such a parameter between two steps is: the next one
// goes on from the master. With Masters::split a bf16 parameter is itself the upper half of its master, and what is
// kept is the lower half: 2 bytes instead of 4.

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lorry/autograd/node.h"
#include "lorry/kernels/list.h"
#include "lorry/optim/by_operators.h"
#include "lorry/optim/execution.h"
#include "lorry/optim/report.h"
#include "lorry/optim/rule.h"
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

/// What a step does beside the update, in the same launches and without waiting for the device.
struct StepOptions {
  /// Gradients are scaled together to have at most this common norm. Where it is NaN, so are then all gradients of the step, as in PyTorch.
  double max_norm = std::numeric_limits<double>::infinity();
  bool skip_nonfinite = false;  ///< when the norm is infinite or NaN, parameters and state stay as they are and the step does not count
  bool zero_grad = false;       ///< gradients are filled with zeros afterwards, also those of a step that was left out
  Tensor scale = {};                                          ///< the loss's: gradients are divided by it first. A 0-d f64 on the parameters' device
};

class Streamed;

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Steps every parameter that has a gradient; the others, and their state, stay as they are. Throws ShapeError,
  /// DTypeError or DeviceError naming a parameter whose gradient does not fit it, OutOfMemory.
  void step();
  /// The same by gradients that are first multiplied by grad_factor, a 0-d f64 on the device of the parameters. When it is NaN, nothing
  /// is written and the step does not count; when it is infinite, every gradient counts as NaN.
  void step(const Tensor& grad_factor);
  /// Norm, clip, unscale, skip, update and zeroing in one. Returns the common norm of the gradients, divided by the scale, before
  /// clipping: a 0-d f64 on the device; undefined when no option needs it. Gradients are only read, but for zero_grad. All parameters
  /// are on one device. Throws ValueError for a negative max_norm, and for gradients to be zeroed that share memory.
  Tensor step(const StepOptions& options);
  /// Forgets all gradients or, with set_to_none false, fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// Every parameter, in the order of the groups.
  std::vector<Tensor> parameters() const;
  int groups() const { return static_cast<int>(groups_.size()); }
  /// The learning rate of a group. Throws IndexError.
  double lr(int group = 0) const;
  /// Sets it for every group, or for one, from the next step on. Throws ValueError when it is negative or not finite.
  void set_lr(double lr);
  void set_lr(int group, double lr);

  /// Everything that steps have accumulated, keyed "<parameter>.<state>", each in its dtype; the tensors are the live state, not
  /// copies of it. A state in 8 bits is two: its codes, u8 and as large as the parameter, and "<parameter>.<state>_scale", f32, the scales
  /// of its blocks of 256; for a parameter that is not contiguous also "<parameter>.<state>_strides", since blocks follow its memory.
  /// Learning rates and other options are the caller's to keep. Waits for the device. States in pinned memory are the host's to read, and
  /// written by later steps: wait for those too.
  TensorMap state_dict() const;
  /// Takes over a state_dict of the same parameters from an optimizer with the same masters and types of states; where they lie may differ.
  /// Throws FormatError for a missing or unexpected entry, ShapeError or DTypeError for one of another kind; nothing is changed then.
  void load_state_dict(const TensorMap& state);

  Execution execution() const { return execution_; }
  /// Bounds what steps of the executions loop and foreach take from the allocator beside parameters, gradients and
  /// states, in bytes; 0: no bound. They step as many elements at a time as that lets, a multiple of 256 of each
  /// parameter that they part, and give the same bits. Fused steps take nothing, but for the chunks of states in pinned
  /// memory, and for 16-bit parameters on a GPU with f32 gradients: there are no fused kernels for these. They are
  /// stepped as by foreach, within this bound or, where it is 0, within 64 MB; a warning (base/bell.h) says so once for
  /// each layout of the gradients. Throws ValueError for fewer bytes than 256 elements take; so does a step whose
  /// gradients need more.
  void set_memory_budget(int64_t bytes);
  int64_t memory_budget() const { return budget_; }
  /// What parameters, gradients and states take, and what a step takes beside them in each execution; also before the first step.
  /// by_factor: of steps that clip, unscale or skip.
  MemoryReport memory_report(bool by_factor = false) const;
  /// How fused steps pass their lists to the device.
  kernels::Strategy strategy() const { return strategy_; }
  void set_strategy(kernels::Strategy strategy);

 protected:
  /// `where` names the optimizer in messages.
  Optimizer(const char* where, Execution execution);

  /// Checks and adds the parameters of the next group; `settings` are those of the rule. Throws ValueError for a parameter that is listed
  /// twice or shares memory with another, GradError for one that needs no gradient or is no leaf, DTypeError unless floating and of a type
  /// that `memory` is for.
  void add_group(const std::vector<NamedTensor>& params, const RuleTraits& rule, const void* settings, const Memory& memory);

  const char* where() const { return where_; }

 private:
  struct GroupState {
    const RuleTraits* rule;
    alignas(8) std::byte settings[kMaxSettings];
    Memory memory;
  };
  /// One parameter and what it carries from step to step. Where it stands among the slots is its number in stochastic rounding.
  struct Slot {
    std::string name;
    Tensor param;
    int group = 0;
    Tensor states[kMaxStates + 1] = {};  ///< the rule's, then what is kept, as they are stored; undefined before the first step
    Layout layout = {};                     ///< in whose order they lie in memory
    int family = -1, clock = -1;            ///< before the first step: none
    IntrusivePtr<autograd::Accumulate> gradient = {};
    // Of the coming step:
    int entry = -1;                         ///< in the family's lists; -1: no gradient
    Tensor own_param = {}, own_grad = {};  ///< aligned copies, where the parameter has gaps or its gradient another layout
    Tensor copied_param = {}, copied_grad = {};  ///< what these are copies of
  };
  /// What parameters have in common that are stepped together. Of `memory` it holds what makes a difference to them.
  struct Kind {
    const RuleTraits* rule;
    Device device;
    DType dtype;
    Memory memory;

    bool operator==(const Kind&) const = default;
    bool f64() const { return dtype == kF64; }
    kernels::Kept kept() const { return optim::kept(memory.masters); }
    bool keeps() const { return memory.masters == Masters::f32 || memory.masters == Masters::split; }
    /// How many tensors there are for a parameter: the states of its rule, and what is kept.
    int arrays() const { return rule->states + (keeps() ? 1 : 0); }
    StateType type(int k) const { return k < rule->states ? memory.states[k] : StateType::f32; }
    /// Of array k as it is stored.
    DType stored(int k) const;
    /// Whether fused steps bring arrays to the device and back.
    bool streams() const { return memory.placement == Placement::pinned && arrays() > 0; }
    /// Array k, uninitialised, of a parameter without gaps: in its order, or codes and scales.
    Tensor empty_state(int k, const Layout& like) const;
    Storing storing() const;
    /// A state on the parameter's device, without waiting: itself, or a copy of one in pinned memory, which write_back
    /// writes back.
    Tensor here(const Tensor& state) const;
    void write_back(const Tensor& state, const Tensor& from) const;
  };
  /// The steps of a family's clocks by operators. They stand until the layout or the budget changes, or what their
  /// programs depend on.
  struct ByOperators {
    bool by_factor, zero_grads;
    std::vector<OperatorStep> steps = {};  ///< one a clock
    std::vector<int> groups = {};          ///< of each step
    bool settings_changed = false;         ///< of some group since: it may have another program now
  };
  /// Parameters that are stepped together.
  struct Family : Kind {
    Tensor clocks;                ///< bytes
    std::vector<int> clock_groups;  ///< the group of each clock
    DType grad_dtype = kF32;        ///< of this step's gradients
    std::unique_ptr<kernels::List> list, grads;
    std::vector<int> slots;  ///< in the order of the lists' entries
    std::shared_ptr<Streamed> streamed = nullptr;  ///< of the list, where states are brought to the device and back
    std::optional<ByOperators> by_operators = {};  ///< of the list, where operators step it

    size_t clock_bytes() const { return rule->clock_bytes[f64()]; }
  };

  Kind kind_of(const Slot& slot) const;
  void require_memory_fits(const std::string& name, const Tensor& param, const GroupState& group) const;
  std::string state_key(const Slot& slot, int k) const;
  /// Array k of a slot, beside `like`, the parameter without gaps and in its order.
  Tensor new_state(const Slot& slot, const Kind& kind, const Tensor& like, int k) const;
  /// The same of one that there is, when the parameter is in another order now.
  Tensor reordered(const Slot& slot, const Kind& kind, const Tensor& like, int k) const;
  void check_order(const std::string& key, const Layout& layout, const TensorMap& dict, std::set<std::string>& used) const;
  void require_separate(const std::vector<NamedTensor>& added) const;
  void require_separate_gradients();

  /// Looks at all parameters and gradients again, and makes states, clocks and lists for what is new.
  void look();
  void check(Slot& slot, const Tensor& grad) const;
  bool move_addresses(uint64_t since);
  void lay_out();
  int family_of(const Slot& slot);
  int new_clock(Family& family, int group, int like);
  void write_clocks(Family& family, int only_group);
  void copy_in();
  void run(const Tensor& grad_factor, bool zero_grads);
  kernels::StepCall call_of(const Family& family, const Tensor& grad_factor, bool zero_grads) const;
  /// Makes the family's steps by operators, unless those that there are will do.
  void plan_operators(Family& family, bool by_factor, bool zero_grads) const;
  OperatorStep operator_step(const Family& family, int clock, Program program, std::vector<SteppedParameter> parameters,
                             bool zero_grads) const;
  /// Takes the memory of all steps by operators: one after the other uses it, those of one device the same.
  std::vector<OperatorMemory> prepare_operators();
  void run_by_operators(Family& family, const Tensor& grad_factor);
  /// Whether operators step parameters in an execution: in a fused step those on a GPU with gradients of another dtype,
  /// for which it has no fused kernels.
  static bool steps_by_operators(Execution execution, const Kind& kind, DType grad_dtype);
  bool steps_by_operators(const Family& family) const {
    return steps_by_operators(execution_, family, family.grad_dtype);
  }
  /// The bytes that steps by operators may take in an execution; 0: no bound.
  int64_t budget_of(Execution execution) const;
  /// Of the gradients that there are.
  DType grad_dtype_of(const Kind& kind) const;
  StepShape shape_of(const Kind& kind, DType grad_dtype, Execution execution, bool by_factor) const;
  Program program_of(const Kind& kind, const GroupState& group, const StepShape& shape) const;
  void require_budget() const;
  /// The fused step of a family whose states lie in pinned memory: they stream through the device while it steps.
  void run_streamed(Family& family, const kernels::StepCall& call);
  /// Takes what it needs for that, and writes nothing.
  void prepare_streamed(Family& family, const kernels::StepCall& call);
  std::vector<double> progress_of(const Family& family) const;

  const char* where_;
  Execution execution_;
  kernels::Strategy strategy_ = kernels::Strategy::automatic;
  int64_t budget_ = 0;  ///< bytes
  std::vector<GroupState> groups_;
  std::vector<Slot> slots_;
  std::vector<Family> families_;
  uint64_t seen_ = 0;         ///< changes() when the lists were looked at; 0: they must be made
  std::vector<int> copied_;  ///< slots of this step with aligned copies
  IntrusivePtr<Epoch> epoch_, grad_epoch_;  ///< of steps, and of those that zero gradients
  std::vector<Storage*> shared_storages_,
      shared_grad_storages_;  ///< storages of this step that belong to another optimizer's epoch too
  std::vector<int> guarded_;  ///< slots of this step with gradients that may not be written
  bool separate_ = false;     ///< no two gradients of this step share memory; else nobody has looked yet
};

}  // namespace lorry::optim
