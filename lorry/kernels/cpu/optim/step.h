#pragma once

// A rule's step over a list on the CPU, for any formula::RuleRun.

#include "lorry/formula/rule_run.h"
#include "lorry/kernels/common/compute.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// Steps every entry of the list, then advances its hyper blocks. Elements of other types than that of computation are
/// converted in blocks that stay in the first-level cache.
void step_list(const StepCall& call, const formula::RuleRun& rule);

/// The value, which captured calls read where it lies.
inline double number(const NumberSource& x) {
  if (x.from == nullptr) return x.value;
  return visit_floating(x.dtype, [&]<class T>(Type<T>) {
    return static_cast<double>(static_cast<Accumulate<T>>(*static_cast<const T*>(x.from)));
  });
}

/// The kernels of a rule on the CPU.
template <class Rule, class C, formula::StepRun<Rule, C> (*kRun)()>
struct RuleOnCpu {
  using Kernels = RuleKernels<Rule, C>;
  using Block = typename Kernels::Block;

  static void step(Block* blocks, const StepCall& call, const Stream&) {
    step_list(call, formula::TypedRun<Rule, C>(blocks, kRun()));
  }
  static void set(Block* blocks, std::span<const typename Kernels::Change> changes, const Stream&) {
    formula::set_hyper_blocks<Rule, C>(blocks, changes);
  }
  static void set_numbers(Block* blocks, std::span<const NumberSource> numbers, const Stream&) {
    for (const NumberSource& x : numbers) formula::set_number(blocks[x.block], x.setting, number(x));
  }
  static void advance(Block* blocks, int32_t count, const double* grad_factor, const Stream&) {
    formula::advance_hyper_blocks(blocks, count, grad_factor);
  }
  static constexpr Kernels kernels() { return {step, set, set_numbers, advance}; }
};

}  // namespace lorry::kernels::cpu
