#pragma once

// A rule with its type hidden, so that what steps parameters is compiled once for all rules. formula/rule.h says what a
// rule is.
//
//   AnyRule      a rule and the settings of one group of parameters
//   HyperBlocks  the rule's hyper-parameter blocks on one device, and the kernels that read them
//
// One template implements both for every rule, Lorry's and a user's: TypedRule, at the end of this file.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/formula/optimizers.h"
#include "lorry/kernels/common/recorded_rule.h"
#include "lorry/optim/memory.h"
#include "lorry/tensor/tensor.h"

namespace lorry::kernels {
struct NumberSource;
struct StepCall;
}  // namespace lorry::kernels

namespace lorry::optim {

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

  virtual ~HyperBlocks() = default;
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
  virtual kernels::HyperBlockLayout layout() const = 0;

  /// From now on steps are those of this recording of the rule.
  void use_recorded(std::unique_ptr<kernels::RecordedRule> rule) { recorded_ = std::move(rule); }

 protected:
  explicit HyperBlocks(Device device) : device_(device) {}
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
  virtual void record(std::span<const int> in_tensors, recording::Symbol* values) const = 0;
  /// Records the update for a choice of flags: bit k stands for flag k of the rule's Hyper.
  virtual void record_flags(uint32_t flags, recording::Symbol* values) const = 0;
  /// How many flags a Hyper has; negative: it has other members beside its numbers than bools.
  virtual int flags() const = 0;
  /// The flags of the settings, where those in a set are zero (bit k stands for setting k) and the others as they are,
  /// or not zero.
  virtual uint32_t flags_where(uint32_t zero) const = 0;
  /// f64: the type of computation is double. Throws DeviceError.
  virtual std::unique_ptr<HyperBlocks> make_blocks(Device device, bool f64) const = 0;
};

// ---- every rule -----------------------------------------------------------------------------------------------------

namespace detail {

template <class Settings>
class RuleWithSettings : public AnyRule {
 public:
  explicit RuleWithSettings(const Settings& settings) : settings_(settings) {}
  const Settings& typed_settings() const { return settings_; }

 protected:
  Settings settings_;
};

/// Kernels: names its Rule, and has static functions step<C>, prepare<C>, set<C>, set_numbers<C> and advance<C> that
/// take a HyperBlock<Rule, C>*.
template <class Kernels, class C>
class TypedHyperBlocks final : public HyperBlocks {
  using Rule = typename Kernels::Rule;
  using Block = formula::HyperBlock<Rule, C>;
  using Progress = formula::ProgressOf<Rule>;
  using Numbers = std::array<double, formula::kProgressCount<Rule>>;
  static_assert(std::is_trivially_copyable_v<Block>);
  static_assert(Rule::kStates <= kMaxStates);

 public:
  explicit TypedHyperBlocks(Device device) : HyperBlocks(device) {}

  int add(const AnyRule& rule, std::span<const double> progress) override {
    expect(rule);
    reserve(sizeof(Block));
    Numbers numbers;
    std::ranges::copy(progress, numbers.begin());
    const auto from = std::bit_cast<Progress>(numbers);
    const formula::HyperBlockChange<Rule> change{count_, true, &settings_of(rule), &from};
    Kernels::template set<C>(data(), {&change, 1}, current_stream(device_));
    return count_++;
  }
  int add_copy(int block) override {
    reserve(sizeof(Block));
    copy_last(sizeof(Block), block);
    return count_++;
  }
  void set(std::span<const Change> changes) override {
    std::vector<formula::HyperBlockChange<Rule>> typed;
    for (const Change& change : changes) {
      expect(*change.rule);
      typed.push_back({change.block, change.running, &settings_of(*change.rule), nullptr});
    }
    if (!typed.empty()) Kernels::template set<C>(data(), typed, current_stream(device_));
  }
  void set_numbers(std::span<const kernels::NumberSource> numbers, const Stream& stream) override {
    Kernels::template set_numbers<C>(data(), numbers, stream);
  }
  std::vector<double> progress() const override {
    std::vector<double> all;
    if (count_ == 0) return all;
    const Tensor bytes = on_host();
    const auto* const blocks = static_cast<const Block*>(static_cast<const void*>(bytes.data_ptr()));
    for (int k = 0; k < count_; ++k)
      for (const double x : std::bit_cast<Numbers>(blocks[k].progress)) all.push_back(x);
    return all;
  }

  void step(const kernels::StepCall& call, const Stream& stream) override {
    if (!steps_recorded_) return Kernels::template step<C>(data(), call, stream);
    const Advance next = step_recorded(call, stream);
    if (next.count > 0) Kernels::template advance<C>(data() + next.first, next.count, next.grad_factor, stream);
  }
  void prepare(const kernels::StepCall& call, const Stream& stream) override {
    if (!(steps_recorded_ = prepare_recorded(call, stream))) Kernels::template prepare<C>(data(), call, stream);
  }
  void advance(const double* grad_factor, const Stream& stream) override {
    Kernels::template advance<C>(data(), count_, grad_factor, stream);
  }
  void use(const Tensor& memory, int count) override {
    require<ValueError>(memory.dtype() == kU8 && memory.is_contiguous() && count >= 0 &&
                            memory.numel() / static_cast<int64_t>(sizeof(Block)) >= count,
                        "{}: hyper blocks of another kind; got {} for {} of {} bytes", Rule::kName, memory, count,
                        sizeof(Block));
    memory_ = memory, count_ = count;
  }
  const void* numbers(int block) const override { return &data()[block].hyper; }
  const double* setting(int block, int setting) const override {
    return &(data()[block].settings.*formula::SettingList<Rule>::all()[static_cast<size_t>(setting)].number);
  }
  const double* steps(int block) const override { return &data()[block].next.steps; }
  kernels::HyperBlockLayout layout() const override {
    const Block block{};
    const auto offset = [&](const auto& part) {
      return reinterpret_cast<const char*>(&part) - reinterpret_cast<const char*>(&block);
    };
    return {.bytes = sizeof(Block),
            .hyper = offset(block.hyper),
            .numbers = formula::kHyperNumbers<Rule>,
            .flags = formula::kHyperFlags<Rule>,
            .next_steps = offset(block.next.steps)};
  }

 private:
  /// The rules of one family have one type.
  static const formula::SettingsOf<Rule>& settings_of(const AnyRule& rule) {
    return static_cast<const RuleWithSettings<formula::SettingsOf<Rule>>&>(rule).typed_settings();
  }
  Block* data() const { return static_cast<Block*>(memory_.data_ptr()); }
};

/// Throws ValueError for a rule that cannot be recorded with all choices of its flags.
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

/// Stands for the kernels of a rule of formula::Rules.
struct BuiltIn {};

template <class Rule, class Kernels = BuiltIn>
class TypedRule final : public RuleWithSettings<formula::SettingsOf<Rule>> {
 public:
  using Settings = formula::SettingsOf<Rule>;
  using RuleWithSettings<Settings>::RuleWithSettings;
  using typename AnyRule::Setting;

  const RuleInfo& info() const override {
    static const RuleInfo kInfo = {Rule::kName,
                                   Rule::kStates,
                                   state_names(),
                                   progress_names(),
                                   first_progress(),
                                   formula::is_signed<Rule>,
                                   static_cast<int>(formula::SettingList<Rule>::all().size())};
    return kInfo;
  }
  double first_state(int k) const override { return Rule::first_state(k, settings_); }
  Setting setting(int k) override {
    const auto& setting = formula::SettingList<Rule>::all()[static_cast<size_t>(k)];
    return {setting.name, settings_.*setting.number, setting.domain};
  }
  const char* conflict() const override {
    if constexpr (requires { Rule::conflict(settings_); })
      return Rule::conflict(settings_);
    else
      return nullptr;
  }
  void record(std::span<const int> in_tensors, recording::Symbol* values) const override {
    recording::record<Rule>(settings_, in_tensors, values);
  }
  void record_flags(uint32_t flags, recording::Symbol* values) const override {
    typename Rule::Progress progress;
    auto hyper = Rule::advance(progress, settings_);
    for (int k = 0; k < kFlags; ++k) {
      const bool flag = flags >> k & 1;
      std::memcpy(const_cast<char*>(flag_of(hyper, k)), &flag, 1);
    }
    recording::record<Rule>(hyper, values);
  }
  int flags() const override { return kFlags; }
  uint32_t flags_where(uint32_t zero) const override {
    Settings assumed = settings_;
    for (uint32_t k = 0; const auto& setting : formula::SettingList<Rule>::all()) {
      double& number = assumed.*setting.number;
      if (zero >> k++ & 1)
        number = 0;
      else if (number == 0)
        number = 1;
    }
    typename Rule::Progress progress;
    const auto hyper = Rule::advance(progress, assumed);
    uint32_t flags = 0;
    for (int k = 0; k < kFlags; ++k) {
      bool flag = false;
      std::memcpy(&flag, flag_of(hyper, k), 1);
      flags |= uint32_t{flag} << k;
    }
    return flags;
  }
  std::unique_ptr<HyperBlocks> make_blocks(Device device, bool f64) const override {
    if constexpr (std::is_same_v<Kernels, BuiltIn>) {
      return make_built_in_blocks(formula::Rules::index<Rule>(), device, f64);
    } else {
      if (f64) return std::make_unique<TypedHyperBlocks<Kernels, double>>(device);
      return std::make_unique<TypedHyperBlocks<Kernels, float>>(device);
    }
  }

 private:
  static constexpr int kFlags = formula::kHyperFlags<Rule>;
  static const char* flag_of(const formula::HyperOf<Rule, double>& hyper, int k) {
    return reinterpret_cast<const char*>(&hyper) + formula::kHyperNumbers<Rule> * sizeof(double) + k;
  }

  static std::span<const char* const> state_names() {
    if constexpr (Rule::kStates > 0)
      return {&Rule::kStateNames[0], Rule::kStates};
    else
      return {};
  }
  static std::span<const char* const> progress_names() {
    return {&Rule::kProgressNames[0], formula::kProgressCount<Rule>};
  }
  static std::vector<double> first_progress() {
    using Numbers = std::array<double, formula::kProgressCount<Rule>>;
    const auto numbers = std::bit_cast<Numbers>(formula::ProgressOf<Rule>());
    return {numbers.begin(), numbers.end()};
  }
  using RuleWithSettings<Settings>::settings_;
};

}  // namespace detail

}  // namespace lorry::optim
