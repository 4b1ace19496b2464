#pragma once

// A rule's step over a list on the CPU, and its hyper blocks there. formula::RuleCode says what a rule brings.

#include <span>

#include "lorry/formula/rule_code.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// Steps every entry of the list: elements of other types are widened in blocks that stay in the first cache. Then its
/// hyper blocks advance.
void step_list(const StepCall& call, const formula::RuleCode& code);
void set_hyper_blocks(void* hyper_blocks, const formula::RuleCode& code, std::span<const HyperBlockChange> changes);
void advance_hyper_blocks(void* hyper_blocks, const formula::RuleCode& code, int32_t first, int32_t count,
                          const double* grad_factor);

/// The functions of a rule on the CPU. kCode gives its code by the type of computation.
template <const formula::RuleCode& (*kCode)(bool f64)>
struct RuleOnCpu {
  static void step(const StepCall& call, const Stream&) { step_list(call, kCode(call.list.dtype(0) == kF64)); }
  static void set(void* hyper_blocks, bool f64, std::span<const HyperBlockChange> changes, const Stream&) {
    set_hyper_blocks(hyper_blocks, kCode(f64), changes);
  }
  static void advance(void* hyper_blocks, bool f64, int32_t first, int32_t count, const double* grad_factor,
                      const Stream&) {
    advance_hyper_blocks(hyper_blocks, kCode(f64), first, count, grad_factor);
  }
  static constexpr RuleKernels kernels() { return {step, set, advance}; }
};

}  // namespace lorry::kernels::cpu
