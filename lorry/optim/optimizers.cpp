#include "lorry/optim/optimizers.h"

#include <fmt/ranges.h>

namespace lorry::optim {

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  AllOptions::each([&]<class Options>(const Options&) { names.emplace_back(Options::kName); });
  return names;
}

void detail::raise_unknown_optimizer(std::string_view name) {
  raise<ValueError>("optimizer: unknown name; got '{}'; expected one of {}", name, fmt::join(optimizer_names(), ", "));
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<NamedTensor>& params,
                                          std::optional<double> lr, Execution execution, const Memory& memory) {
  std::unique_ptr<Optimizer> optimizer;
  with_options(name, [&]<class Options>(Options options) {
    if (lr) options.lr = *lr;
    options.memory = memory;
    optimizer = std::make_unique<OptimizerFor<Options>>(params, options, execution);
  });
  return optimizer;
}

}  // namespace lorry::optim
