#pragma once

// optim.cu is compiled in shares of the rules.

#include "lorry/kernels/optim.h"

namespace lorry::kernels::cuda {

inline constexpr int kRuleShares = 8;
template <int kShare>
void fill_rules(RuleKernels* rules);

void load_stored(const StoredCall& call, const Stream& stream);
void store_stored(const StoredCall& call, const Stream& stream);

}  // namespace lorry::kernels::cuda
