// The steps of Lorry's rules, from their list; compiled in shares of the rules, so that no compilation is long.

#include "lorry/kernels/cuda/optim/optim.h"
#include "lorry/kernels/cuda/optim/rule.h"

namespace lorry::kernels::cuda {

template <>
void fill_rules<LORRY_SHARE>(RuleKernels* rules) {
  int at = 0;
  formula::Rules::each([&]<class Rule>() {
    if constexpr (formula::Rules::index<Rule>() % kRuleShares == LORRY_SHARE) rules[at] = RuleOnCuda<Rule>::kernels();
    ++at;
  });
}

}  // namespace lorry::kernels::cuda
