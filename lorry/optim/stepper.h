#pragma once

// What an Optimizer does behind its face: the parameters it holds, the families it steps, and how it lays out lists.
//
// Invariant: a step is made wholly or not at all. Gradients are checked, state is made, errors of earlier kernels are
// thrown and all memory of the device is taken before anything is written: a step that throws leaves parameters, state
// and counters as they were. Two exceptions: kernels of a GPU lay out lists in host memory as they go, and where a
// user's rule has no code for the GPU the host advances its hyper blocks. A *family* is the parameters that share
// device, dtype, rule and memory options; each is one launch. If a later family fails so, earlier ones have stepped.
//
// A step that finds everything where it was costs the host a few microseconds, however many parameters there are: what
// does not change between steps, the lists, is kept (kernels/common/list.h), and looked through again only when a
// gradient somewhere was replaced. Learning rates and step counts lie on the device (formula/rule.h): the host learns
// of them when it asks for the state.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lorry/autograd/node.h"
#include "lorry/foreach/list_plan.h"
#include "lorry/kernels/common/list.h"
#include "lorry/optim/execution/eager.h"
#include "lorry/optim/optimizer.h"
#include "lorry/optim/rules/rule.h"

namespace lorry::optim {

class Streamed;

class Stepper {
 public:
  Stepper(const char* where, Execution execution);
  ~Stepper();
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // ---- what Optimizer offers; optimizer.h says what each does -------------------------------------------------------
  void step();
  void step(const Tensor& grad_factor);
  Tensor step(const StepOptions& options);
  void zero_grad(bool set_to_none);
  std::vector<Tensor> parameters() const;
  int groups() const { return static_cast<int>(groups_.size()); }
  std::vector<std::string> settings(int group) const;
  double get(int group, std::string_view name) const;
  Tensor setting_tensor(int group, std::string_view name) const;
  void set(int group, std::string_view name, const Operand& value);
  TensorMap state_dict() const;
  void load_state_dict(const TensorMap& state);
  Execution execution() const { return execution_; }
  void set_memory_budget(int64_t bytes);
  int64_t memory_budget() const { return budget_; }
  MemoryReport memory_report(bool by_factor) const;
  Strategy strategy() const { return strategy_; }
  void set_strategy(Strategy strategy);
  void add_group(const std::vector<NamedTensor>& params, std::shared_ptr<detail::AnyRule> rule, const Memory& memory);
  void require_parameters() const;

 private:
  /// A number among a group's settings that lies in a tensor.
  struct SettingTensor {
    int setting;
    Tensor tensor;
  };
  struct GroupState {
    std::shared_ptr<detail::AnyRule> rule;
    Memory memory;
    /// In place of numbers of the rule's settings, which are then what the host last saw.
    std::vector<SettingTensor> tensors = {};
  };
  /// One parameter and what it carries from step to step. Where it stands among the slots is its number in stochastic
  /// rounding.
  struct Slot {
    std::string name;
    Tensor param;
    int group = 0;
    Tensor states[kMaxStates + 1] = {};  ///< the rule's, then the master; undefined before the first step
    Layout layout = {};                  ///< in whose order they lie in memory
    int family = -1, hyper_block = -1;   ///< before the first step: none
    IntrusivePtr<autograd::Accumulate> gradient = {};
    // Of the next step:
    int entry = -1;  ///< in the family's lists; -1: no gradient
    /// Contiguous copies, where the parameter is not dense or its gradient has another layout.
    Tensor dense_param = {}, ordered_grad = {};
    Tensor grad_source = {};  ///< what the latter is a copy of
  };
  /// What parameters have in common that are stepped together. Of `memory` it holds what makes a difference to them.
  struct Kind {
    const detail::RuleInfo* rule;
    Device device;
    DType dtype;
    Memory memory;

    bool operator==(const Kind&) const = default;
    bool f64() const { return dtype == kF64; }
    kernels::MasterKind master_kind() const { return optim::master_kind(memory.masters); }
    bool has_master() const { return memory.masters == Masters::f32 || memory.masters == Masters::split; }
    /// How many tensors there are for a parameter: the states of its rule, and the master.
    int arrays() const { return rule->states + (has_master() ? 1 : 0); }
    StateType type(int k) const { return k < rule->states ? memory.states[k] : StateType::f32; }
    /// Of array k: the states, then the master.
    DType array_dtype(int k) const;
    /// Whether fused steps bring arrays to the device and back.
    bool streams() const { return memory.placement == Placement::pinned && arrays() > 0 && !device.is_meta(); }
    /// Array k, uninitialised, of a dense parameter: in its order, or codes and scales. On meta all are there.
    Tensor empty_state(int k, const Layout& like) const;
    Compression compression() const;
    /// A state on the parameter's device, without waiting: itself, or a copy of one in pinned memory, which write_back
    /// writes back.
    Tensor to_device(const Tensor& state) const;
    void write_back(const Tensor& state, const Tensor& from) const;
  };
  /// The steps of a family's hyper blocks eagerly. They stand until the layout or the budget changes, or what their
  /// programs depend on.
  struct EagerPlan {
    bool by_factor, zero_grads;
    std::vector<EagerStep> steps = {};  ///< one a hyper block
    std::vector<int> groups = {};       ///< of each step
    bool settings_changed = false;      ///< of some group since: it may have another program now
  };
  /// Parameters that are stepped together.
  struct Family : Kind {
    std::unique_ptr<detail::HyperBlocks> blocks;
    std::vector<int> block_groups = {};               ///< the group of each hyper block
    DType grad_dtype = kF32;                          ///< of this step's gradients
    int in_plan = -1;                                 ///< its group there; -1: it is not stepped
    std::vector<int> slots = {};                      ///< in the order of the lists' entries
    std::vector<kernels::NumberSource> numbers = {};  ///< settings that this step reads in tensors
    std::shared_ptr<Streamed> streamed = nullptr;     ///< of the list, where states are brought to the device and back
    std::optional<EagerPlan> eager = {};              ///< of the list, where operators step it
  };

  Kind kind_of(const Slot& slot) const;
  void require_memory_fits(const std::string& name, const Tensor& param, const GroupState& group) const;
  std::string state_key(const Slot& slot, int k) const;
  /// Array k of a slot, beside `like`, the parameter or its dense copy.
  Tensor new_state(const Slot& slot, const Kind& kind, const Tensor& like, int k) const;
  /// The same of one that there is, when the parameter is in another order now.
  Tensor reordered(const Slot& slot, const Kind& kind, const Tensor& like, int k) const;
  class StateReader;
  /// Reads a slot's states into memory of its own; returns the progress of its parameter.
  std::vector<double> load_slot(Slot& slot, StateReader& reader) const;
  void require_separate(const std::vector<NamedTensor>& added) const;
  void require_separate_gradients();

  /// Looks at all parameters and gradients again; makes states, hyper blocks and lists for new ones.
  void refresh();
  void check(Slot& slot, const Tensor& grad) const;
  bool update_addresses(uint64_t since);
  void lay_out();
  struct Draft;
  struct DraftParameter;
  void draft_arrays(const Slot& slot, DraftParameter& own) const;
  void draft_hyper_blocks(Draft& draft);
  void draft_plan(Draft& draft) const;
  void adopt(Draft& draft);
  /// Throws IndexError.
  const GroupState& group(int group) const;
  /// Throws ValueError for a name that is not a number of the rule.
  int setting_index(int group, std::string_view name) const;
  void set_number(int group, int k, double value);
  void set_tensor(int group, int k, const Tensor& value);
  /// What the host can know of settings in tensors before a step: checks them, and takes over values in host memory.
  void read_settings();
  std::vector<kernels::NumberSource> numbers_of(const Family& family) const;
  double first_state(const GroupState& group, int k) const;
  int family_of(const Slot& slot);
  int new_hyper_block(Family& family, int group, int like);
  void write_hyper_blocks(Family& family, int only_group);
  /// Of a family that is stepped.
  const kernels::List& list(const Family& family) const { return plan_->list(static_cast<size_t>(family.in_plan)); }
  /// Writes the copies of a family that was stepped back.
  void copy_out(const Family& family, bool zero_grads);
  /// What gradients are multiplied by, one for each device, or none.
  using Factors = std::vector<Tensor>;
  Tensor clip_factors(const StepOptions& options, Factors& factors) const;
  struct DeviceGradients;
  std::vector<DeviceGradients> gradients_by_device() const;
  /// As its list has it: itself, or the copy in its parameter's order.
  static Tensor gradient_of(const Slot& slot);
  void run(const Factors& factors, bool zero_grads);
  void announce(const Family& family, const Tensor& grad_factor, bool zero_grads,
                const std::function<void()>& step) const;
  kernels::StepCall call_of(const Family& family, const Tensor& grad_factor, bool zero_grads) const;
  /// Makes the family's steps eagerly, unless those that there are will do.
  void plan_eager(Family& family, bool by_factor, bool zero_grads) const;
  EagerStep eager_step(const Family& family, int hyper_block, Program program, std::vector<SteppedParameter> parameters,
                       bool zero_grads) const;
  /// Takes the memory of all steps eagerly: one after the other uses it, those of one device the same.
  std::vector<EagerMemory> prepare_eager();
  void run_eager(Family& family, const Tensor& grad_factor);
  /// Whether operators step parameters.
  bool steps_eagerly() const { return execution_ == Execution::loop || execution_ == Execution::foreach; }
  /// Of the gradients that there are.
  DType grad_dtype_of(const Kind& kind) const;
  StepShape shape_of(const Kind& kind, DType grad_dtype, Execution execution, bool by_factor) const;
  Program program_of(const Kind& kind, const GroupState& group, const StepShape& shape) const;
  /// The smallest budget that lets every family step; 0 where none needs one.
  int64_t needed_budget() const;
  void require_budget() const;
  // ---- memory_report: the step is run on meta, where it computes nothing, and what it takes is counted
  /// Gives another stepper parameters like these, with gradients, on the meta devices that stand for theirs.
  void add_parameters_on_meta(Stepper& to) const;
  void run_on_meta(MemoryReport::Step& step, bool by_factor);
  /// The bytes of states, masters and copies, after a step.
  void report_arrays(MemoryReport& report) const;
  /// The fused step of a family whose states lie in pinned memory: they stream through the device while it steps.
  void run_streamed(Family& family, const kernels::StepCall& call);
  /// Takes what it needs for that, and writes nothing.
  void prepare_streamed(Family& family, const kernels::StepCall& call);

  const char* where_;
  Execution execution_;
  Strategy strategy_ = Strategy::automatic;
  int64_t budget_ = 0;  ///< bytes
  std::vector<GroupState> groups_;
  std::vector<Slot> slots_;
  std::vector<Family> families_;
  uint64_t seen_ = 0;                      ///< changes() when the plan was looked at; 0: it must be made
  std::optional<foreach::ListPlan> plan_;  ///< of all families: a group each, an entry a slot
  size_t gradients_ = 0;                   ///< its lists of gradients alone
  IntrusivePtr<lorry::detail::Epoch> epoch_, grad_epoch_;  ///< of steps, and of those that zero gradients
  std::vector<Storage*> shared_storages_,
      shared_grad_storages_;  ///< storages of this step that belong to another optimizer's epoch too
  std::vector<int> guarded_;  ///< slots of this step with gradients that may not be written
  bool separate_ = false;     ///< no two gradients of this step share memory; else nobody has looked yet
};

}  // namespace lorry::optim
