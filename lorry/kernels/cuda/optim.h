#pragma once

// optim.cu is compiled in shares of the rules.

#include "lorry/kernels/optim.h"

namespace lorry::kernels::cuda {

inline constexpr int kRuleShares = 6;
template <int kShare>
void fill_rules(RuleKernels* rules);

}  // namespace lorry::kernels::cuda
