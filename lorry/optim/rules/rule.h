#pragma once

// A rule with its type hidden, so that what steps parameters is compiled once for all rules. formula/rule.h says what a
// rule is.
//
//   AnyRule      a rule and the settings of one group of parameters
//   HyperBlocks  the rule's hyper-parameter blocks on one device, and the kernels that read them
//
// One template implements both for every rule, Lorry's and a user's: TypedRule (typed_rule.h).

#include <memory>
#include <span>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/formula/rule.h"
#include "lorry/optim/memory.h"
#include "lorry/tensor/tensor.h"

namespace lorry::kernels {
struct NumberSource;
struct RecordedRule;
struct StepCall;
}  // namespace lorry::kernels
namespace lorry::kernels::recording {
class Symbol;
}  // namespace lorry::kernels::recording

namespace lorry::optim::detail {

/// What is true of a rule whatever its settings are. There is one RuleInfo a rule: its address is the rule's identity.
struct RuleInfo {
  const char* name;
  int states;
  std::span<const char* const> state_names;
  std::span<const char* const> progress_names;  ///< steps first
  std::vector<double> first_progress;           ///< of parameters that have made no step
  bool (*is_signed)(int state);
  int settings;  ///< how many numbers may change between steps
};

class AnyRule;

class HyperBlocks {
 public:
  struct Change {
    int block;
    bool running;         ///< whether its parameters take part in the next step
    const AnyRule* rule;  ///< with the new settings
  };

  virtual ~HyperBlocks();
  int count() const { return count_; }
  /// Adds a hyper block of parameters at this progress. Returns its number. Throws OutOfMemory.
  virtual int add(const AnyRule& rule, std::span<const double> progress) = 0;
  /// Adds a copy of a hyper block. Returns its number. Throws OutOfMemory.
  virtual int add_copy(int block) = 0;
  /// Writes settings, ordered on the current stream. Does not wait for the device.
  virtual void set(std::span<const Change> changes) = 0;
  /// Writes single numbers among settings, ordered on `stream`, which may be captured: those that lie on the device
  /// are read there, when the stream comes to it.
  virtual void set_numbers(std::span<const kernels::NumberSource> numbers, const Stream& stream) = 0;
  /// The progress of every hyper block, one after the other. Waits for the device.
  virtual std::vector<double> progress() const = 0;

  /// A fused step, or one by the recorded rule; kernels::StepCall says what it does.
  virtual void step(const kernels::StepCall& call, const Stream& stream) = 0;
  /// Takes the device memory that `step` needs, and writes nothing.
  virtual void prepare(const kernels::StepCall& call, const Stream& stream) = 0;
  /// Advances all hyper blocks unless *grad_factor (null: 1) is NaN.
  virtual void advance(const double* grad_factor, const Stream& stream) = 0;

  /// The bytes of all hyper blocks, on the device; undefined before there are any.
  const Tensor& memory() const { return memory_; }
  /// Uses hyper blocks that are there. Throws ValueError for bytes that do not hold so many.
  virtual void use(const Tensor& memory, int count) = 0;

  /// The numbers of a hyper block, on the device: of the type of computation, in the order of the rule's Hyper.
  virtual const void* numbers(int block) const = 0;
  /// Number `setting` among its settings, on the device.
  virtual const double* setting(int block, int setting) const = 0;
  /// How many steps its parameters will have made after the next one, on the device.
  virtual const double* steps(int block) const = 0;
  virtual formula::detail::HyperBlockLayout layout() const = 0;

  /// From now on steps are those of this recording of the rule.
  void use_recorded(std::unique_ptr<kernels::RecordedRule> rule);

 protected:
  explicit HyperBlocks(Device device);
  /// Room for one more of `bytes` bytes each.
  void reserve(int64_t bytes);
  void copy_last(int64_t bytes, int from);
  Tensor on_host() const;
  /// Hyper blocks may have these settings from now on, or such of which others are zero.
  void expect(const AnyRule& rule);
  /// Whether the device steps by the recorded rule; takes what that needs.
  bool prepare_recorded(const kernels::StepCall& call, const Stream& stream);
  /// Which hyper blocks are to advance after a step, and its factor.
  struct Advance {
    int32_t first, count;
    const double* grad_factor;
  };
  Advance step_recorded(const kernels::StepCall& call, const Stream& stream) const;

  Device device_;
  int count_ = 0;
  Tensor memory_;  ///< of the blocks, bytes
  std::unique_ptr<kernels::RecordedRule> recorded_;
  bool steps_recorded_ = false;
};

class AnyRule {
 public:
  /// A number among the settings, which may change between steps.
  struct Setting {
    const char* name;
    double& number;
    formula::Domain domain;
  };

  virtual ~AnyRule() = default;
  virtual const RuleInfo& info() const = 0;
  /// What state k of new parameters is filled with.
  virtual double first_state(int k) const = 0;
  virtual Setting setting(int k) = 0;
  /// What is wrong with settings that are each in their domain but do not go together; null: nothing.
  virtual const char* conflict() const = 0;
  /// Records the update, for the executions loop and foreach (kernels/common/recording.h). in_tensors: settings
  /// that lie in tensors.
  virtual void record(std::span<const int> in_tensors, kernels::recording::Symbol* values) const = 0;
  /// Records the update for a choice of flags: bit k stands for flag k of the rule's Hyper.
  virtual void record_flags(uint32_t flags, kernels::recording::Symbol* values) const = 0;
  /// How many flags a Hyper has; negative: it has other members beside its numbers than bools.
  virtual int flags() const = 0;
  /// The flags of the settings, where those in a set are zero (bit k stands for setting k) and the others as they are,
  /// or not zero.
  virtual uint32_t flags_where(uint32_t zero) const = 0;
  /// f64: the type of computation is double. Throws DeviceError.
  virtual std::unique_ptr<HyperBlocks> make_blocks(Device device, bool f64) const = 0;
};

/// Whether a rule can be recorded with all choices of its flags.
bool is_recordable(const AnyRule& rule);
/// Throws ValueError for a rule that cannot.
void require_recordable(const AnyRule& rule);
/// The recording of a rule; blocks: its hyper blocks of this type of computation.
std::unique_ptr<kernels::RecordedRule> record_rule(const AnyRule& rule, const HyperBlocks& blocks, bool f64);
/// Where a hyper block reads a setting that lies in x, one floating element: on a GPU, the hyper block's own, by its
/// address, and on the CPU by its present value.
kernels::NumberSource number_source(int block, int setting, const Tensor& x);
/// The index of a rule in formula::Rules; -1 for another, such as a user's own.
int built_in_index(const RuleInfo& rule);
/// What is true of the rule with an index.
const RuleInfo& built_in_rule(int index);
/// Of a rule of formula::Rules, by its index there.
std::unique_ptr<HyperBlocks> make_built_in_blocks(int index, Device device, bool f64);

}  // namespace lorry::optim::detail
