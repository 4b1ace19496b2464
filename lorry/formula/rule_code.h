#pragma once

// A rule with its type forgotten, for one type of computation: the loop over a run of elements, and what its clocks do.
// Lorry's rules come with a vectorized loop; a user's rule has whatever his compiler makes of step_scalars.

#include <cstring>

#include "lorry/formula/clip.h"
#include "lorry/formula/rule.h"

namespace lorry::formula {

/// Steps n elements of a parameter by the gradient times multiplier(factor). All addresses are of one element type,
/// float or double, and so is the block of hyper-parameters.
using StepRun = void (*)(void* param, const void* grad, void* const* states, int64_t n, const void* hyper,
                         double factor);

/// A run in scalars.
template <class Rule, class C>
void step_scalars(void* param, const void* grad, void* const* states, int64_t n, const void* hyper, double factor) {
  auto* const p = static_cast<C*>(param);
  auto* const g = static_cast<const C*>(grad);
  const auto h = *static_cast<const HyperOf<Rule, C>*>(hyper);
  const C by = multiplier(static_cast<C>(factor));
  for (int64_t i = 0; i < n; ++i) {
    C own[Rule::kStates > 0 ? Rule::kStates : 1];
    for (int k = 0; k < Rule::kStates; ++k) own[k] = static_cast<C*>(states[k])[i];
    Rule()(p[i], g[i] * by, own, h);
    for (int k = 0; k < Rule::kStates; ++k) static_cast<C*>(states[k])[i] = own[k];
  }
}

struct RuleCode {
  size_t clock_bytes, hyper_at, coming_at;  ///< of a Clock, and where its members lie
  int states;
  unsigned not_negative;  ///< bit k: state k is never below zero
  StepRun run;
  void (*set)(void* clock, const ClockChange& change);
  void (*tick)(void* clock);
};

template <class Rule, class C>
constexpr RuleCode rule_code(StepRun run = step_scalars<Rule, C>) {
  using Clock = formula::Clock<Rule, C>;
  unsigned not_negative = 0;
  for (int k = 0; k < Rule::kStates; ++k) not_negative |= unsigned{!is_signed<Rule>(k)} << k;
  const auto set = [](void* at, const ClockChange& change) {
    Clock& clock = *static_cast<Clock*>(at);
    if (change.settings) clock.settings = *static_cast<const SettingsOf<Rule>*>(change.settings);
    if (change.progress) std::memcpy(static_cast<void*>(&clock.progress), change.progress, sizeof(clock.progress));
    clock.running = change.running;
    clock.wind();
  };
  return {.clock_bytes = sizeof(Clock),
          .hyper_at = offsetof(Clock, hyper),
          .coming_at = offsetof(Clock, coming),
          .states = Rule::kStates,
          .not_negative = not_negative,
          .run = run,
          .set = set,
          .tick = [](void* clock) { static_cast<Clock*>(clock)->tick(); }};
}

}  // namespace lorry::formula
