#pragma once

// Rules behind an interface, so that the code that steps parameters is compiled once for all rules. formula/rule.h says
// what a rule is.
//
//   AnyRule      a rule and the settings of one group of parameters
//   HyperBlocks  the rule's hyper-parameter blocks on one device, and the kernels that read them
//
// One template implements both for every rule, Lorry's and a user's: TypedRule (typed_rule.h).

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/formula/rule.h"
#include "lorry/optim/memory.h"
#include "lorry/tensor/tensor.h"

namespace lorry::kernels {
struct NumberSource;
struct RecordedBlocks;
struct RecordedRule;
struct StepCall;
}  // namespace lorry::kernels
namespace lorry::kernels::recording {
class Symbol;
}  // namespace lorry::kernels::recording

namespace lorry::optim::detail {

class AnyRule;
class HyperBlocks;

/// What is true of a rule for any settings. There is one RuleInfo a rule: its address is the rule's identity.
struct RuleInfo {
  const char* name;
  int states;
  std::span<const char* const> state_names;
  std::span<const char* const> progress_names;  ///< steps first
  std::vector<double> first_progress;           ///< of parameters that have made no step
  bool (*is_signed)(int state);
  int settings;  ///< how many numbers may change between steps
  /// The rule with its default settings.
  std::unique_ptr<AnyRule> (*make)();
  /// Hyper blocks of the rule on a device, none yet. f64: the type of computation is double. Throws DeviceError.
  std::unique_ptr<HyperBlocks> (*make_blocks)(Device device, bool f64);

  ~RuleInfo();  ///< nobody finds it by its number any more (rule_number)
};

/// The numbers of a rule's Hyper, on a device, in the type of computation.
using HyperNumbers = std::variant<std::span<const float>, std::span<const double>>;

class HyperBlocks {
 public:
  struct Change {
    int block;
    bool running;         ///< whether its parameters are stepped next
    const AnyRule* rule;  ///< with the new settings
  };

  virtual ~HyperBlocks();
  int count() const { return count_; }
  /// Adds a hyper block of parameters at this progress. Returns its number. Throws OutOfMemory.
  virtual int add(const AnyRule& rule, std::span<const double> progress) = 0;
  /// Adds a copy of a hyper block. Returns its number. Throws OutOfMemory.
  virtual int add_copy(int block) = 0;
  /// Writes settings, in the order of the current stream. Does not wait for the device.
  virtual void set(std::span<const Change> changes) = 0;
  /// Writes single settings, in the order of `stream`, which may be captured. Numbers on the device are read by the
  /// device when the stream gets there.
  virtual void set_numbers(std::span<const kernels::NumberSource> numbers, const Stream& stream) = 0;
  /// The progress of all hyper blocks, one after the other. Waits for the device.
  virtual std::vector<double> progress() const = 0;

  /// Whether fused steps have code for the device.
  virtual bool has_kernels() const = 0;
  /// A fused step, or one by the recorded rule; kernels::StepCall says what it does.
  virtual void step(const kernels::StepCall& call, const Stream& stream) = 0;
  /// Allocates the device memory that `step` needs, and writes nothing.
  virtual void prepare(const kernels::StepCall& call, const Stream& stream) = 0;
  /// Advances all hyper blocks unless *grad_factor (null: 1) is NaN.
  virtual void advance(const double* grad_factor, const Stream& stream) = 0;

  /// The bytes of all hyper blocks, on the device; undefined before there are any.
  const Tensor& memory() const { return memory_; }
  /// Uses `count` existing hyper blocks in place of its own. Throws ValueError if the bytes do not hold so many.
  virtual void use(const Tensor& memory, int count) = 0;

  /// The numbers of a hyper block, in the order of the rule's Hyper.
  virtual HyperNumbers numbers(int block) const = 0;
  /// A setting of a hyper block, on the device.
  virtual const double* setting(int block, int setting) const = 0;
  /// How many steps the parameters of a hyper block will have made after the next one, on the device.
  virtual const double* steps(int block) const = 0;
  virtual formula::detail::HyperBlockLayout layout() const = 0;

  /// From now on `step` runs this recording of the rule.
  void use_recorded(std::unique_ptr<kernels::RecordedRule> rule);

 protected:
  explicit HyperBlocks(Device device);
  /// Makes room for one more hyper block; each has `bytes` bytes.
  void reserve(int64_t bytes);
  void copy_last(int64_t bytes, int from);
  Tensor on_host() const;
  /// Marks the updates reachable with these settings, for any subset set to zero.
  void expect(const AnyRule& rule);
  /// Prepares a step by the recording, if there is one. Returns false if the device cannot run it.
  bool prepare_recorded(const kernels::StepCall& call, const Stream& stream);
  /// The hyper blocks that advance after a step, and its factor.
  struct Advance {
    int32_t first, count;
    const double* grad_factor;
  };
  Advance step_recorded(const kernels::StepCall& call, const Stream& stream) const;

  kernels::RecordedBlocks recorded_blocks() const;

  Device device_;
  int count_ = 0;
  Tensor memory_;  ///< of the blocks, bytes
  std::unique_ptr<kernels::RecordedRule> recorded_;
  bool steps_recorded_ = false;
};

class AnyRule {
 public:
  /// A setting that may change between steps.
  struct Setting {
    const char* name;
    double& number;
    formula::Domain domain;
  };

  virtual ~AnyRule() = default;
  virtual const RuleInfo& info() const = 0;
  /// The initial value of state k.
  virtual double first_state(int k) const = 0;
  virtual Setting setting(int k) = 0;
  /// What is wrong with the settings together, though each is in its domain; null: nothing.
  virtual const char* conflict() const = 0;
  /// Records the update, for the executions loop and foreach (kernels/common/recording.h). in_tensors: the settings
  /// that lie in tensors.
  virtual void record(std::span<const int> in_tensors, kernels::recording::Symbol* values) const = 0;
  /// Records the update with these flags: bit k is flag k of the rule's Hyper.
  virtual void record_flags(uint32_t flags, kernels::recording::Symbol* values) const = 0;
  /// How many flags the rule's Hyper has; negative: it has members that are neither numbers nor bools.
  virtual int flags() const = 0;
  /// Flags if the settings in `zero` are 0 and the rest keep their value (1 where they were 0). Bit k of `zero` stands
  /// for setting k, bit k of the result for flag k.
  virtual uint32_t flags_where(uint32_t zero) const = 0;
};

/// Whether a rule can be recorded for every combination of its flags.
bool is_recordable(const AnyRule& rule);
/// Throws ValueError if it cannot.
void require_recordable(const AnyRule& rule);
/// The recording of a rule. blocks: hyper blocks of this type of computation.
std::unique_ptr<kernels::RecordedRule> record_rule(const AnyRule& rule, const HyperBlocks& blocks, bool f64);
/// How a hyper block gets a setting that lies in x, one floating element: from x's address on a GPU, or by its present
/// value if x lies on the CPU.
kernels::NumberSource number_source(int block, int setting, const Tensor& x);
/// The number that names a rule in announced steps: its index in formula::Rules, or for a user's rule one behind these,
/// which holds until this process ends.
int rule_number(const RuleInfo& rule);
/// The rule with a number. Throws ValueError where there is none.
const RuleInfo& rule_of(int number);
/// Hyper blocks of a rule of formula::Rules, by its index there.
std::unique_ptr<HyperBlocks> make_built_in_blocks(int index, Device device, bool f64);
/// Whether a step by these hyper blocks can be made again from its announcement.
bool can_run_again(const AnyRule& rule, const HyperBlocks& blocks, Device device);
/// Hyper blocks of a rule, none yet, for steps that are made again from their announcement: by the code of fused steps,
/// or if the device has none by a recording of the rule. Throws ValueError if the rule cannot be recorded.
std::unique_ptr<HyperBlocks> make_blocks_to_run_again(const RuleInfo& rule, Device device, bool f64);

}  // namespace lorry::optim::detail
