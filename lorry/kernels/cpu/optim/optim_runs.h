#pragma once

// Optimizer rules over one run of elements, in the two types in which the CPU computes; compiled once for each
// instruction set.

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

/// The functions for the instruction set of this process.
const OptimRuns& optim_runs();

}  // namespace lorry::kernels::cpu
