#pragma once

// The weights of tokens in sampling: integers, whose sums are exact in any order, from operations that IEEE 754 rounds
// exactly. So every device draws the same token.

#include <bit>
#include <cstdint>

#include "lorry/base/macros.h"
#include "lorry/formula/philox.h"
#include "lorry/formula/random.h"
#include "lorry/formula/scalar.h"

namespace lorry::formula {

/// Below it a weight is 0.
inline constexpr double kLeastTokenExponent = -23;

/// 2^32 e^y for y <= 0, rounded, at most 2^32 - 1; 0 for NaN. The error before rounding is below 2^-36 relative.
LORRY_INLINE uint32_t token_weight(double y) {
  if (!(y > kLeastTokenExponent)) return 0;
  constexpr double kLog2E = 1.4426950408889634, kRound = 0x1.8p52;
  const double n = fma(y, kLog2E, kRound) - kRound;
  // n ln 2 in two parts, of which the first has trailing zeros: e^y = 2^n e^r, |r| <= ln 2 / 2.
  const double r = fma(n, -1.90821492927058770002e-10, fma(n, -6.93147180369123816490e-01, y));
  const double e =
      horner(r, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  const double power = std::bit_cast<double>(static_cast<uint64_t>(1023 + 32 + static_cast<int64_t>(n)) << 52);
  const double weight = fma(e, power, 0.5);
  return weight < 0x1p32 ? static_cast<uint32_t>(weight) : UINT32_MAX;
}

/// How one row's tokens are weighed.
struct TokenWeights {
  float largest;   ///< logit of the row
  double inverse;  ///< of the temperature

  LORRY_INLINE TokenWeights(float largest, float temperature)
      : largest(largest), inverse(temperature > 0 ? 1.0 / static_cast<double>(temperature) : 0x1p1000) {}
  /// Of a logit that is neither NaN nor -infinity. If the largest is infinite, its equals alone have a weight.
  LORRY_INLINE uint32_t operator()(float logit) const {
    if (logit == largest) return UINT32_MAX;
    return token_weight((static_cast<double>(logit) - static_cast<double>(largest)) * inverse);
  }
};

/// The number of tokens that a row's settings leave, the likeliest first, at most `most`.
LORRY_INLINE int64_t token_limit(float temperature, int32_t top_k, int64_t most) {
  const int64_t limit = temperature > 0 ? top_k : 1;
  return limit > 0 && limit < most ? limit : most;
}
/// The smallest sum of weights that reaches the fraction top_p of `total`.
LORRY_INLINE uint64_t token_mass(float top_p, uint64_t total) {
  if (!(top_p < 1)) return total;
  const double wanted = static_cast<double>(top_p) * static_cast<double>(total);
  const uint64_t whole = wanted > 0 ? static_cast<uint64_t>(wanted) : 0;
  const uint64_t up = static_cast<double>(whole) < wanted ? whole + 1 : whole;
  return up < 1 ? 1 : up < total ? up : total;
}
/// The point in [0, selected) at which `uniform` falls. A uniform outside [0, 1) counts as the nearest end, NaN as 0.
LORRY_INLINE uint64_t token_point(double uniform, uint64_t selected) {
  constexpr double kDigits = 0x1p53;
  const uint64_t digits = !(uniform > 0) ? 0
                          : uniform < 1  ? static_cast<uint64_t>(uniform * kDigits)
                                         : (uint64_t{1} << 53) - 1;
  return below(digits << 11, selected);
}

/// The uniform of a sequence's draw: the f64 of block `stream` of the draw (seed, draw), as formula/philox.h names
/// them.
LORRY_INLINE double token_uniform(uint64_t seed, uint64_t stream, uint64_t draw) {
  const Words4 words = random_block(RandomKey{seed, draw}, stream);
  return unit_f64(words.word[0], words.word[1]);
}

/// A token's place in the order by likelihood: by falling logit, then by index. The logit is no NaN; -0 counts as 0.
LORRY_INLINE uint64_t token_order(float logit, uint32_t index) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(~rising) << 32 | index;
}

}  // namespace lorry::formula
