#pragma once

// What a step works on. A *slot* is one parameter and what it carries from step to step. A *family* is the parameters
// that share device, dtype, rule and memory options; they are stepped together. FamilyStep is how: execution/
// implements it for each Execution.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lorry/autograd/node.h"
#include "lorry/device/stream.h"
#include "lorry/kernels/common/number_source.h"
#include "lorry/kernels/optim.h"
#include "lorry/optim/execution.h"
#include "lorry/optim/execution/compression.h"
#include "lorry/optim/memory.h"
#include "lorry/optim/rules/rule.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// A number among a group's settings that lies in a tensor.
struct SettingTensor {
  int setting;
  Tensor tensor;
};

/// What the parameters of a group share.
struct GroupState {
  std::shared_ptr<detail::AnyRule> rule;
  Memory memory;
  /// These settings are read from tensors; the rule holds the values that the host saw last.
  std::vector<SettingTensor> tensors = {};
};

/// One parameter. Its index among the slots is its number in stochastic rounding.
struct Slot {
  std::string name;
  Tensor param;
  int group = 0;
  Tensor states[kMaxStates + 1] = {};  ///< the rule's, then the master; undefined before the first step
  Layout layout = {};                  ///< of the states
  int family = -1, hyper_block = -1;   ///< -1: before the first step
  IntrusivePtr<autograd::Accumulate> gradient = {};
  // Of the next step:
  int entry = -1;           ///< index in the family's lists; -1: no gradient
  Tensor dense_param = {};  ///< a contiguous copy; defined if the parameter is non-dense
  /// A copy of the gradient in the layout of the parameter and in Family::grad_dtype; defined if either differs.
  Tensor grad_copy = {};
  Tensor grad_source = {};  ///< what grad_copy is a copy of
};

/// What makes parameters a family. `memory` holds only the options that make a difference to them.
struct FamilyKind {
  const detail::RuleInfo* rule;
  Device device;
  DType dtype;
  Memory memory;

  bool operator==(const FamilyKind&) const = default;
  bool f64() const { return dtype == kF64; }
  kernels::MasterKind master_kind() const { return optim::master_kind(memory.masters); }
  bool has_master() const { return memory.masters == Masters::f32 || memory.masters == Masters::split; }
  /// How many arrays a parameter has: the states of its rule, and the master.
  int arrays() const { return rule->states + (has_master() ? 1 : 0); }
  /// Of array k: the states, then the master.
  DType array_dtype(int k) const;
  /// Whether fused steps bring the arrays to the device and back.
  bool streams() const { return memory.placement == Placement::pinned && arrays() > 0; }
  /// Array k, uninitialised, of a dense parameter: in its order, or codes and scales. On meta all lie on the device.
  Tensor empty_state(int k, const Layout& like) const;
  Compression compression() const;
  /// A state on the parameter's device, without waiting: itself, or a copy of one in pinned memory, which write_back
  /// writes back.
  Tensor to_device(const Tensor& state) const;
  void write_back(const Tensor& state, const Tensor& from) const;
};

/// The dtype in which gradients reach the kernels, of parameters of dtype `param`: its own, f32 for 16 bits too, and
/// otherwise that of the computation. Other gradients are converted into copies.
DType grad_dtype_in_kernels(DType param, DType grad);
/// The same of several gradients that are stepped together. so_far: of those before `grad`.
DType common_grad_dtype(DType param, std::optional<DType> so_far, DType grad);

/// What the steps of all families share.
struct StepContext {
  const char* where;  ///< names the optimizer in messages
  Execution execution;
  int64_t budget;  ///< Optimizer::memory_budget
  std::span<const GroupState> groups;
  std::span<const Slot> slots;
};

/// Memory for intermediate results. The families of a device use the same one, one after the other.
struct StepBuffers {
  Tensor numbers, arrays;  ///< bytes
};

struct Family;

/// The step of one family. It is made for a list of parameters and used until the list changes; addresses in it may
/// change between steps. Everything that may run out of the device's memory is done before run().
class FamilyStep {
 public:
  virtual ~FamilyStep() = default;
  /// Takes what run() of the same call needs, but for buffers. Writes no parameter and no state.
  virtual void prepare(const Family& family, const StepContext& context, const kernels::StepCall& call,
                       const Stream& stream) = 0;
  /// How many bytes of StepBuffers::arrays run() needs; empty: it needs no buffers. After prepare().
  virtual std::optional<int64_t> buffer_bytes() const { return {}; }
  virtual void take_buffers(const StepBuffers&) {}
  /// Steps the parameters and advances their hyper blocks.
  virtual void run(const Family& family, const kernels::StepCall& call, const Stream& stream) = 0;
  /// A group's settings have changed, or lie in other tensors.
  virtual void settings_changed() {}
  /// Bytes on the device through which pinned states stream.
  virtual int64_t chunk_bytes() const { return 0; }
};

struct Family : FamilyKind {
  std::unique_ptr<detail::HyperBlocks> blocks;
  std::vector<int> block_groups = {};               ///< the group of each hyper block
  DType grad_dtype = kF32;                          ///< of this step's gradients, as the kernels get them
  int in_plan = -1;                                 ///< its group there; -1: it is not stepped
  std::vector<int> slots = {};                      ///< in the order of the lists' entries
  std::vector<kernels::NumberSource> numbers = {};  ///< settings that this step reads from tensors
  std::unique_ptr<FamilyStep> step = nullptr;       ///< for the lists as they are; null: made by the next step
};

}  // namespace lorry::optim
