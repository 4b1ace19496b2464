#pragma once

// Optimizer rules over one run of elements, in the two types in which the CPU computes; compiled once for each
// instruction set.

#include <cstdint>

#include "lorry/formula/optimizers.h"
#include "lorry/formula/rule_code.h"

namespace lorry::kernels::cpu {

struct OptimRuns {
  formula::StepRun rules[formula::kRules][2];  ///< [0] float, [1] double
};

/// The functions for the instruction set of this process.
const OptimRuns& optim_runs();

}  // namespace lorry::kernels::cpu
