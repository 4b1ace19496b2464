#pragma once

// AnyRule and HyperBlocks for every rule, Lorry's or a user's, by one template each.

#include <algorithm>
#include <array>
#include <bit>

#include "lorry/formula/optimizers.h"
#include "lorry/kernels/common/recording.h"
#include "lorry/optim/rules/rule.h"

namespace lorry::optim::detail {

template <class Settings>
class RuleWithSettings : public AnyRule {
 public:
  explicit RuleWithSettings(const Settings& settings) : settings_(settings) {}
  const Settings& typed_settings() const { return settings_; }

 protected:
  Settings settings_;
};

/// Kernels: names its Rule, has static functions step<C>, prepare<C>, set<C>, set_numbers<C> and advance<C> that take a
/// HyperBlock<Rule, C>*, and says with kOnCuda whether `step` has code for GPUs.
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

  bool has_kernels() const override { return Kernels::kOnCuda || !device_.is_cuda(); }
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
  HyperNumbers numbers(int block) const override {
    // The numbers come first in a Hyper, and are all of type C.
    return std::span(reinterpret_cast<const C*>(&data()[block].hyper), sizeof(Block::hyper) / sizeof(C));
  }
  const double* setting(int block, int setting) const override {
    return &(data()[block].settings.*formula::SettingList<Rule>::all()[static_cast<size_t>(setting)].number);
  }
  const double* steps(int block) const override { return &data()[block].next.steps; }
  formula::detail::HyperBlockLayout layout() const override { return formula::detail::layout_of<Rule, C>(); }

 private:
  /// All rules of a family have the same type.
  static const formula::SettingsOf<Rule>& settings_of(const AnyRule& rule) {
    return static_cast<const RuleWithSettings<formula::SettingsOf<Rule>>&>(rule).typed_settings();
  }
  Block* data() const { return static_cast<Block*>(memory_.data_ptr()); }
};

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
                                   static_cast<int>(formula::SettingList<Rule>::all().size()),
                                   [] { return std::unique_ptr<AnyRule>(std::make_unique<TypedRule>(Settings())); },
                                   make_blocks};
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
  void record(std::span<const int> in_tensors, kernels::recording::Symbol* values) const override {
    kernels::recording::record<Rule>(settings_, in_tensors, values);
  }
  void record_flags(uint32_t flags, kernels::recording::Symbol* values) const override {
    typename Rule::Progress progress;
    auto hyper = Rule::advance(progress, settings_);
    if constexpr (kFlags > 0) {
      auto parts = std::bit_cast<formula::detail::HyperParts<Rule>>(hyper);
      for (int k = 0; k < kFlags; ++k) parts.flags[k] = flags >> k & 1;
      hyper = std::bit_cast<decltype(hyper)>(parts);
    }
    kernels::recording::record<Rule>(hyper, values);
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
    if constexpr (kFlags > 0) {
      const auto parts = std::bit_cast<formula::detail::HyperParts<Rule>>(hyper);
      for (int k = 0; k < kFlags; ++k) flags |= uint32_t{parts.flags[k]} << k;
    }
    return flags;
  }

 private:
  static constexpr int kFlags = formula::detail::kHyperFlags<Rule>;

  static std::span<const char* const> state_names() {
    if constexpr (Rule::kStates > 0)
      return {&Rule::kStateNames[0], Rule::kStates};
    else
      return {};
  }
  static std::span<const char* const> progress_names() {
    return {&Rule::kProgressNames[0], formula::kProgressCount<Rule>};
  }
  static std::unique_ptr<HyperBlocks> make_blocks(Device device, bool f64) {
    if constexpr (std::is_same_v<Kernels, BuiltIn>) {
      return make_built_in_blocks(formula::Rules::index<Rule>(), device, f64);
    } else {
      if (f64) return std::make_unique<TypedHyperBlocks<Kernels, double>>(device);
      return std::make_unique<TypedHyperBlocks<Kernels, float>>(device);
    }
  }
  static std::vector<double> first_progress() {
    using Numbers = std::array<double, formula::kProgressCount<Rule>>;
    const auto numbers = std::bit_cast<Numbers>(formula::ProgressOf<Rule>());
    return {numbers.begin(), numbers.end()};
  }
  using RuleWithSettings<Settings>::settings_;
};

}  // namespace lorry::optim::detail
