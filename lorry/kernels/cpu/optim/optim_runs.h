#pragma once

// Optimizer rules over a run of elements, for each type of computation. Compiled once for each instruction set.

#include <cstdint>

#include "lorry/formula/optimizers.h"
#include "lorry/formula/rule_run.h"

namespace lorry::kernels::cpu {

template <class Rule>
struct RuleRuns {
  formula::StepRun<Rule, float> f32;
  formula::StepRun<Rule, double> f64;
};
using OptimRuns = formula::Rules::Table<RuleRuns>;

/// The functions for this processor's instruction set.
const OptimRuns& optim_runs();

}  // namespace lorry::kernels::cpu
