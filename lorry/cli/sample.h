#pragma once

// Choosing the next byte from what a model says about all of them.

#include <cstdint>
#include <span>

namespace lorry::cli {

struct Sampling {
  double temperature = 1.0;  ///< 0: always the likeliest
  int64_t top_k = 0;         ///< 0: all
  double top_p = 1.0;
};

/// The index drawn from softmax(logits / temperature), restricted to the top_k likeliest and then to the fewest
/// likeliest that together have probability top_p (Holtzman et al. 2020). `uniform` in [0, 1) decides; ties go to the
/// lower index. Throws ValueError when every logit is NaN or -inf.
int64_t sample(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace lorry::cli
