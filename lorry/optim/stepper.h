#pragma once

// What stands behind Optimizer: the slots (parameters) that it holds, the families in which they are stepped
// (family.h), and the plan of their lists (foreach/list_plan.h).
//
// Invariant: each family steps wholly or not at all. A step first checks gradients, makes states, throws errors that
// earlier kernels reported, and takes all memory of the device. An error in this part leaves every family as it was:
// parameters, states and counters. Then the families step one after the other, each as one call that listeners hear
// (ops/dispatch/listener.h). An error of one family does not stop the others; the first error is thrown at the end.
//   - A listener's `before` that throws refuses its family: nothing of it is written.
//   - A listener's `after` that throws comes after its family was stepped; copies of parameters are written back.
//   - Host memory that runs out while kernels of a GPU lay out a list, or while the host advances the hyper blocks of a
//     user's rule without code for the GPU, may leave that family stepped in part.
//
// A step that finds everything where it was costs the host a few microseconds, for any number of parameters: the lists
// are kept, and looked through again only when a gradient somewhere was replaced. Learning rates and step counts lie on
// the device (formula/rule.h). The host reads them when it is asked for the state.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lorry/foreach/list_plan.h"
#include "lorry/optim/family.h"
#include "lorry/optim/optimizer.h"

namespace lorry::optim {

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
  // ---- groups and settings (stepper.cpp) ----------------------------------------------------------------------------
  void require_memory_fits(const std::string& name, const Tensor& param, const GroupState& group) const;
  void require_separate(const std::vector<NamedTensor>& added) const;
  /// Throws IndexError.
  const GroupState& group(int group) const;
  /// Throws ValueError for a name that is none of the rule's settings.
  int setting_index(int group, std::string_view name) const;
  void set_number(int group, int k, double value);
  void set_tensor(int group, int k, const Tensor& value);
  void settings_changed();
  /// Before a step: checks the settings that lie in tensors, and reads those in host memory.
  void read_settings();
  std::vector<kernels::NumberSource> numbers_of(const Family& family) const;
  double first_state(const GroupState& group, int k) const;

  // ---- families and hyper blocks (stepper.cpp) ----------------------------------------------------------------------
  FamilyKind kind_of(const Slot& slot) const;
  int family_of(const Slot& slot);
  int new_hyper_block(Family& family, int group, int like);
  void write_hyper_blocks(Family& family, int only_group);

  // ---- states (state.cpp) -------------------------------------------------------------------------------------------
  std::string state_key(const Slot& slot, int k) const;
  /// Array k of a slot, beside `like`, the parameter or its dense copy.
  Tensor new_state(const Slot& slot, const FamilyKind& kind, const Tensor& like, int k) const;
  /// Array k in the layout of `like`, which is not that of the slot's states.
  Tensor reordered(const Slot& slot, const FamilyKind& kind, const Tensor& like, int k) const;
  class StateReader;
  /// Reads a slot's states into memory of its own; returns the progress of its parameter.
  std::vector<double> load_slot(Slot& slot, StateReader& reader) const;

  // ---- the plan (plan.cpp) ------------------------------------------------------------------------------------------
  /// Looks at all parameters and gradients again; makes states, hyper blocks and lists for new ones.
  void refresh();
  void check(Slot& slot, const Tensor& grad) const;
  bool update_addresses(uint64_t since);
  void require_separate_gradients();
  void lay_out();
  struct Draft;
  struct DraftParameter;
  void draft_families(Draft& draft);
  void draft_arrays(const Slot& slot, DType grad_dtype, DraftParameter& own) const;
  void draft_hyper_blocks(Draft& draft);
  void draft_plan(Draft& draft) const;
  void adopt(Draft& draft);
  /// Of a family that is stepped.
  const kernels::List& list(const Family& family) const { return plan_->list(static_cast<size_t>(family.in_plan)); }

  // ---- the step (step.cpp) ------------------------------------------------------------------------------------------
  /// What gradients are multiplied by, one for each device, or none.
  using Factors = std::vector<Tensor>;
  Tensor clip_factors(const StepOptions& options, Factors& factors) const;
  struct DeviceGradients;
  std::vector<DeviceGradients> gradients_by_device() const;
  /// As its list has it: itself, or its copy.
  static Tensor gradient_of(const Slot& slot);
  StepContext context() const;
  kernels::StepCall call_of(const Family& family, const Tensor& grad_factor, bool zero_grads) const;
  void run(const Factors& factors, bool zero_grads);
  void prepare(Family& family, const kernels::StepCall& call) const;
  /// Allocates buffers shared by all eager steps of a device.
  std::vector<StepBuffers> allocate_buffers();
  /// Tells tensors that a step is about to write them.
  void count_writes(bool zero_grads);
  void step_family(Family& family, const Tensor& grad_factor, bool zero_grads);
  void announce(const Family& family, const Tensor& grad_factor, bool zero_grads,
                const std::function<void()>& step) const;
  void write_back_copies(const Family& family, bool zero_grads);
  /// Whether operators step parameters.
  bool steps_eagerly() const { return execution_ == Execution::loop || execution_ == Execution::foreach; }

  // ---- the memory budget (budget.cpp) -------------------------------------------------------------------------------
  /// In which the gradients of parameters of a kind reach the kernels; the parameters' where there are no gradients.
  DType grad_dtype_of(const FamilyKind& kind) const;
  /// The smallest budget that lets every family step; 0 where none needs one.
  int64_t needed_budget() const;
  void require_budget() const;

  // ---- memory_report (report.cpp): the step is run on meta, where it computes nothing, and what it takes is counted
  /// Gives another stepper parameters like these, with gradients, on the meta devices that stand for theirs.
  void add_parameters_on_meta(Stepper& to) const;
  void run_on_meta(MemoryReport::Step& step, bool by_factor);
  /// The bytes of states, masters, copies and chunks, after a step.
  void report_arrays(MemoryReport& report) const;

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
