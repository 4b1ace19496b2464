#pragma once

// Samples the next byte from a model's logits.

#include <cstdint>
#include <span>

namespace lorry::cli {

struct Sampling {
  double temperature = 1.0;  ///< 0: always the most likely byte
  int64_t top_k = 0;         ///< 0: all
  double top_p = 1.0;
};

/// Draws an index from softmax(logits / temperature), restricted to the top_k most likely, then to the smallest set of
/// most likely ones with a total probability of top_p (Holtzman et al. 2020). `uniform` in [0, 1) determines the draw.
/// Ties: the lower index first. Throws ValueError if every logit is NaN or -inf.
int64_t sample(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace lorry::cli
