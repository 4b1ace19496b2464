#pragma once

// A rule with its type forgotten: what an optimizer needs to know of it. See formula/rule.h for what a rule is.

#include <cstring>

#include "lorry/formula/optimizers.h"
#include "lorry/layout/device.h"
#include "lorry/optim/execution/recording.h"
#include "lorry/optim/memory.h"

namespace lorry::kernels {
struct RuleKernels;
}

namespace lorry::optim {

/// The most bytes of a rule's settings, and numbers of its progress.
inline constexpr size_t kMaxSettings = 128, kMaxProgress = 8;

struct RuleTraits {
  const char* name;
  int states;
  const char* const* state_names;
  int progress;  ///< numbers
  const char* const* progress_names;
  double first_progress[kMaxProgress];
  size_t settings_bytes;
  size_t hyper_block_bytes[2], progress_at[2], next_at[2],
      hyper_at[2];  ///< of HyperBlock<Rule, C>: [0] float, [1] double
  double (*first_state)(int state, const void* settings);
  bool (*is_signed)(int state);
  double& (*lr)(void* settings);
  /// Records the update, for the executions loop and foreach (recording.h).
  void (*record)(const void* settings, Symbol* values);
  /// The fused kernels on a device. Throws DeviceError.
  const kernels::RuleKernels& (*kernels)(Device device);
};

/// Of the rule that stands at `index` in formula::Rules. Throws DeviceError.
const kernels::RuleKernels& built_in_kernels(int index, Device device);
template <class Rule>
const kernels::RuleKernels& built_in_kernels(Device device) {
  return built_in_kernels(formula::Rules::index<Rule>(), device);
}

template <class Rule, const kernels::RuleKernels& (*kKernels)(Device) = built_in_kernels<Rule>>
const RuleTraits& rule_traits() {
  using Settings = formula::SettingsOf<Rule>;
  using Narrow = formula::HyperBlock<Rule, float>;
  using Wide = formula::HyperBlock<Rule, double>;
  static_assert(Rule::kStates <= kMaxStates && sizeof(Settings) <= kMaxSettings &&
                formula::kProgressCount<Rule> <= static_cast<int>(kMaxProgress));
  static_assert(std::is_trivially_copyable_v<Settings>);
  static const RuleTraits kTraits = [] {
    const char* const* names = nullptr;
    if constexpr (Rule::kStates > 0) names = Rule::kStateNames;
    RuleTraits traits{.name = Rule::kName,
                      .states = Rule::kStates,
                      .state_names = names,
                      .progress = formula::kProgressCount<Rule>,
                      .progress_names = Rule::kProgressNames,
                      .first_progress = {},
                      .settings_bytes = sizeof(Settings),
                      .hyper_block_bytes = {sizeof(Narrow), sizeof(Wide)},
                      .progress_at = {offsetof(Narrow, progress), offsetof(Wide, progress)},
                      .next_at = {offsetof(Narrow, next), offsetof(Wide, next)},
                      .hyper_at = {offsetof(Narrow, hyper), offsetof(Wide, hyper)},
                      .first_state =
                          [](int state, const void* settings) {
                            return Rule::first_state(state, *static_cast<const Settings*>(settings));
                          },
                      .is_signed = formula::is_signed<Rule>,
                      .lr = [](void* settings) -> double& { return static_cast<Settings*>(settings)->lr; },
                      .record = optim::record<Rule>,
                      .kernels = kKernels};
    const formula::ProgressOf<Rule> first;
    std::memcpy(traits.first_progress, &first, sizeof(first));
    return traits;
  }();
  return kTraits;
}

}  // namespace lorry::optim
