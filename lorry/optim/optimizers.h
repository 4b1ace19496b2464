#pragma once

// All optimizers, and how to make one by its name: its options' kName, such as "adamw". Each file of rules/ lists its
// own at its end.

#include <optional>

#include "lorry/optim/rules/adam.h"
#include "lorry/optim/rules/adaptive.h"
#include "lorry/optim/rules/sgd.h"

namespace lorry::optim {

/// Every optimizer, in the order in which messages list them.
struct AllOptions {
  /// Calls f with the default options of each.
  template <class F>
  static void each(const F& f) {
    AdamOptionsList::each(f);
    AdaptiveOptionsList::each(f);
    SgdOptionsList::each(f);
  }
};

/// The names of all optimizers.
std::vector<std::string> optimizer_names();

namespace detail {
/// Throws ValueError that lists the names.
[[noreturn]] void raise_unknown_optimizer(std::string_view name);
}  // namespace detail

/// Calls f with the default options of the optimizer called `name`; OptimizerFor<decltype(options)> is its class.
/// Throws ValueError for another name.
template <class F>
void with_options(std::string_view name, const F& f) {
  bool found = false;
  AllOptions::each([&]<class Options>(Options options) {
    if (name != Options::kName) return;
    found = true;
    f(options);
  });
  if (!found) detail::raise_unknown_optimizer(name);
}

/// The optimizer called `name` with its default options, but for those given. Throws ValueError for another name.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<NamedTensor>& params,
                                          std::optional<double> lr = {}, Execution execution = Execution::automatic,
                                          const Memory& memory = {});

}  // namespace lorry::optim
