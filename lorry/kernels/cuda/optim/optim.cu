// The step kernels of Lorry's rules. The file is compiled several times, each time for a share of the rules
// (LORRY_SHARE), so that no compilation takes long.

#include "lorry/kernels/cuda/optim/optim.h"
#include "lorry/kernels/cuda/optim/rule.h"

namespace lorry::kernels::cuda {

template <>
void fill_rules<LORRY_SHARE>(OptimKernels& kernels) {
  formula::Rules::each([&]<class Rule>() {
    if constexpr (formula::Rules::index<Rule>() % kRuleShares == LORRY_SHARE)
      kernels.rules.of<Rule>() = {RuleOnCuda<Rule, float>::kernels(), RuleOnCuda<Rule, double>::kernels()};
  });
}

}  // namespace lorry::kernels::cuda
