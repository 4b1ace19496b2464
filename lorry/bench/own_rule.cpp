// A rule as a user writes one. Next to the built-in `sgd_momentum` it shows the cost of a user's rule. own_rule.cu is
// the same with device code.

#include "lorry/bench/optim_memory.h"
#include "lorry/optim/custom.h"

namespace lorry::bench {
namespace {

struct Momentum {
  static constexpr const char* kName = "own_momentum";

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    states[0] = h[0] * states[0] + grad;
    param = param - h.lr * states[0];
  }
};

}  // namespace

std::unique_ptr<optim::Optimizer> make_own_momentum(const std::vector<Tensor>& params, double lr) {
  const auto rule = optim::rule<1>(Momentum(), lr, {0.9});
  return std::make_unique<optim::Custom<decltype(rule)::Rule>>(optim::numbered(params), rule);
}

}  // namespace lorry::bench
