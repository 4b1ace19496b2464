#include "lorry/kernels/common/walk.h"

#include <algorithm>

#include "lorry/base/error.h"

namespace lorry::kernels {

Walk::Walk(const MapCall& call) {
  std::vector<Layout> layouts;
  const auto index = [&](const FusedOperand& x) {
    if (x.layout.rank < 0) return -1;
    const auto found = std::find(layouts.begin(), layouts.end(), x.layout);
    if (found != layouts.end()) return static_cast<int>(found - layouts.begin());
    layouts.push_back(x.layout);
    return static_cast<int>(layouts.size()) - 1;
  };
  for (const FusedOutput& x : call.outputs) of_output.push_back(index(x.to));
  for (const FusedOperand& x : call.inputs) of_input.push_back(index(x));
  require<ValueError>(layouts.size() <= static_cast<size_t>(kMaxFusedLayouts), "too many layouts; got {}",
                      layouts.size());
  iteration = collapse(layouts.data(), static_cast<int>(layouts.size()));
}

}  // namespace lorry::kernels
