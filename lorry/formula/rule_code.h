#pragma once

// A rule with its type forgotten, for one type of computation: the loop over a run of elements, and what its hyper blocks do.
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
  size_t hyper_block_bytes, hyper_at, next_at;  ///< of a HyperBlock, and where its members lie
  int states;
  unsigned not_negative;  ///< bit k: state k is never below zero
  StepRun run;
  void (*set)(void* hyper_block, const HyperBlockChange& change);
  void (*advance)(void* hyper_block);
};

template <class Rule, class C>
constexpr RuleCode rule_code(StepRun run = step_scalars<Rule, C>) {
  using HyperBlock = formula::HyperBlock<Rule, C>;
  unsigned not_negative = 0;
  for (int k = 0; k < Rule::kStates; ++k) not_negative |= unsigned{!is_signed<Rule>(k)} << k;
  const auto set = [](void* at, const HyperBlockChange& change) {
    HyperBlock& hyper_block = *static_cast<HyperBlock*>(at);
    if (change.settings) hyper_block.settings = *static_cast<const SettingsOf<Rule>*>(change.settings);
    if (change.progress)
      std::memcpy(static_cast<void*>(&hyper_block.progress), change.progress, sizeof(hyper_block.progress));
    hyper_block.running = change.running;
    hyper_block.refresh();
  };
  return {.hyper_block_bytes = sizeof(HyperBlock),
          .hyper_at = offsetof(HyperBlock, hyper),
          .next_at = offsetof(HyperBlock, next),
          .states = Rule::kStates,
          .not_negative = not_negative,
          .run = run,
          .set = set,
          .advance = [](void* hyper_block) { static_cast<HyperBlock*>(hyper_block)->advance(); }};
}

}  // namespace lorry::formula
