#pragma once

// A rule's step over a list on the CPU. What a rule brings is one function a type, over a run of elements: vector code for Lorry's
// rules, and for a user's own whatever his compiler makes of the loop below.

#include <cstring>
#include <span>

#include "lorry/formula/clip.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// Steps n elements of a parameter by the gradient times formula::multiplier(factor). All addresses are of one element type, float or double,
/// and so is the block of hyper-parameters.
using StepRun = void (*)(void* param, const void* grad, void* const* states, int64_t n, const void* hyper, double factor);

/// What a step knows of its rule beside the run.
struct StepRule {
  size_t clock_bytes, hyper_at, coming_at;  ///< of a clock, and what is where in it
  int states;
  unsigned not_negative;  ///< bit k: state k is never below zero
};
template <class Rule, class C>
constexpr StepRule step_rule() {
  using Clock = formula::Clock<Rule, C>;
  StepRule rule{sizeof(Clock), offsetof(Clock, hyper), offsetof(Clock, coming), Rule::kStates, 0};
  for (int k = 0; k < Rule::kStates; ++k) rule.not_negative |= unsigned{!formula::is_signed<Rule>(k)} << k;
  return rule;
}

/// Steps every entry of the list: elements of other types are widened in blocks that stay in the first cache. Clocks do not tick.
void step_list(const StepCall& call, StepRun run, const StepRule& rule);

/// The functions of a rule on the CPU but for the run itself.
template <class Rule, StepRun (*kRun)(bool f64)>
struct RuleOnCpu {
  template <class F>
  static void visit(void* clocks, bool f64, const F& f) {
    if (f64)
      f(static_cast<formula::Clock<Rule, double>*>(clocks));
    else
      f(static_cast<formula::Clock<Rule, float>*>(clocks));
  }
  static void step(const StepCall& call, const Stream& stream) {
    const bool f64 = call.list.dtype(0) == kF64;
    step_list(call, kRun(f64), f64 ? step_rule<Rule, double>() : step_rule<Rule, float>());
    tick(call.clocks, f64, call.first_clock, call.clock_count, call.grad_factor, stream);
  }
  static void set(void* clocks, bool f64, std::span<const ClockChange> changes, const Stream&) {
    visit(clocks, f64, [&](auto* all) {
      for (const ClockChange& change : changes) {
        auto& clock = all[change.clock];
        if (change.settings) clock.settings = *static_cast<const formula::SettingsOf<Rule>*>(change.settings);
        if (change.progress) std::memcpy(static_cast<void*>(&clock.progress), change.progress, sizeof(clock.progress));
        clock.running = change.running;
        clock.wind();
      }
    });
  }
  static void tick(void* clocks, bool f64, int32_t first, int32_t count, const double* grad_factor, const Stream&) {
    if (grad_factor && *grad_factor != *grad_factor) return;
    visit(clocks, f64, [&](auto* all) {
      for (int32_t k = first; k < first + count; ++k) all[k].tick();
    });
  }
  static constexpr RuleKernels kernels() { return {step, set, tick}; }
};

/// A run in scalars.
template <class Rule, class C>
void step_scalars(void* param, const void* grad, void* const* states, int64_t n, const void* hyper, double factor) {
  auto* const p = static_cast<C*>(param);
  auto* const g = static_cast<const C*>(grad);
  const auto h = *static_cast<const formula::HyperOf<Rule, C>*>(hyper);
  const C by = formula::multiplier(static_cast<C>(factor));
  for (int64_t i = 0; i < n; ++i) {
    C own[Rule::kStates > 0 ? Rule::kStates : 1];
    for (int k = 0; k < Rule::kStates; ++k) own[k] = static_cast<C*>(states[k])[i];
    Rule()(p[i], g[i] * by, own, h);
    for (int k = 0; k < Rule::kStates; ++k) static_cast<C*>(states[k])[i] = own[k];
  }
}

}  // namespace lorry::kernels::cpu
