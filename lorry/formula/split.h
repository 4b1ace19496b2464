#pragma once

// An f32 as two halves: a bf16, the number rounded to nearest, ties away from zero, and 16 bits of remainder, the
// difference of the bit patterns as a signed number. A bf16 parameter so carries its f32 master without a copy of the
// upper half. Every f32 but the NaNs, which become one, is the sum of its halves.

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::formula {

/// The bits of the bf16.
LORRY_INLINE uint32_t upper_half(uint32_t bits) {
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (bits + 0x8000u) >> 16;
}
/// The remainder, in the low 16 bits.
LORRY_INLINE uint32_t lower_half(uint32_t bits, uint32_t upper) {
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0u : (bits - (upper << 16)) & 0xffffu;
}
/// The bits of the f32.
LORRY_INLINE uint32_t joined(uint16_t upper, uint16_t lower) {
  return (static_cast<uint32_t>(upper) << 16) +
         static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(lower)));
}

}  // namespace lorry::formula
