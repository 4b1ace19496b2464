#pragma once

// Stochastic rounding of an f32 to bf16: up with the probability of what is cut off, so that the mean of many roundings
// is the number itself, and steps that are smaller than a bf16's last bit add up (Gupta et al., "Deep learning with
// limited numerical precision", 2015, section 3). The random bits are counted, not kept: a seed, the parameter's
// number, the step, the array and the element name them (philox.h), on every device and in every execution the same.

#include <bit>
#include <cstdint>

#include "lorry/formula/philox.h"

namespace lorry::formula {

/// Elements that take their bits from one block of random words, 16 bits each.
inline constexpr int kRoundedAtOnce = 8;

/// Of one array of a parameter at a step: array 0 is the parameter, 1 + k its state k.
LORRY_INLINE RandomKey rounding_key(uint64_t seed, uint32_t number, uint32_t array, double step) {
  return {seed, static_cast<uint64_t>(number * 4 + array) << 32 | static_cast<uint32_t>(step)};
}

/// The 16 random bits of element i, from the words of block i / 8.
LORRY_INLINE uint32_t rounding_bits(const Words4& words, int i) {
  return words.word[i % 8 / 2] >> 16 * (i % 2) & 0xffffu;
}

/// The bits of the bf16. NaNs become one; an infinity has no bits to carry into.
LORRY_INLINE uint32_t round_stochastically(float x, uint32_t random) {
  return x != x ? 0x7fc0u : (std::bit_cast<uint32_t>(x) + random) >> 16;
}

}  // namespace lorry::formula
