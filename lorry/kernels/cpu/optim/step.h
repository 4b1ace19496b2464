#pragma once

// A rule's step over a list on the CPU, and its clocks there. formula::RuleCode says what a rule brings.

#include <span>

#include "lorry/formula/rule_code.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// Steps every entry of the list: elements of other types are widened in blocks that stay in the first cache. Then its
/// clocks tick.
void step_list(const StepCall& call, const formula::RuleCode& code);
void set_clocks(void* clocks, const formula::RuleCode& code, std::span<const ClockChange> changes);
void tick_clocks(void* clocks, const formula::RuleCode& code, int32_t first, int32_t count, const double* grad_factor);

/// The functions of a rule on the CPU. kCode gives its code by the type of computation.
template <const formula::RuleCode& (*kCode)(bool f64)>
struct RuleOnCpu {
  static void step(const StepCall& call, const Stream&) { step_list(call, kCode(call.list.dtype(0) == kF64)); }
  static void set(void* clocks, bool f64, std::span<const ClockChange> changes, const Stream&) {
    set_clocks(clocks, kCode(f64), changes);
  }
  static void tick(void* clocks, bool f64, int32_t first, int32_t count, const double* grad_factor, const Stream&) {
    tick_clocks(clocks, kCode(f64), first, count, grad_factor);
  }
  static constexpr RuleKernels kernels() { return {step, set, tick}; }
};

}  // namespace lorry::kernels::cpu
