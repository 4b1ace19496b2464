#include "lorry/cli/sample.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lorry/base/error.h"

namespace lorry::cli {

int64_t sample(std::span<const float> logits, const Sampling& sampling, double uniform) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -INFINITY) order.push_back(static_cast<int64_t>(i));  // NaN compares false
  require<ValueError>(!order.empty(), "generate: no byte has a probability; got logits that are all NaN or -inf");
  std::ranges::sort(order, {}, [&](int64_t i) { return std::pair(-logits[static_cast<size_t>(i)], i); });
  if (sampling.temperature == 0.0) return order[0];
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(sampling.top_k));

  const double largest = logits[static_cast<size_t>(order[0])];
  std::vector<double> weights;
  double total = 0;
  for (const int64_t i : order) {
    // inf - inf is NaN, so an infinite logit is treated as certain.
    const double gap = std::isinf(largest) ? (std::isinf(logits[static_cast<size_t>(i)]) ? 0.0 : -INFINITY)
                                           : logits[static_cast<size_t>(i)] - largest;
    weights.push_back(std::exp(gap / sampling.temperature));
    total += weights.back();
  }
  double selected = 0;
  size_t count = 0;
  do selected += weights[count++];
  while (count < weights.size() && selected < sampling.top_p * total);

  double left = uniform * selected;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[count - 1];
}

}  // namespace lorry::cli
