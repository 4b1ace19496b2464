#pragma once

// Arrays in 8 bits, block-wise: 256 elements share a scale, their largest magnitude, and each is a code of the dynamic
// map (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization", ICLR 2022, sections 2
// and 3; the map: Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016, section 2.3), with
// powers of 8 in place of powers of 10, so that every number of the map is exact in binary.
//
// Of W bits of magnitude, 7 beside a sign or 8 without, e leading zeros say that it lies in (8^-(e+1), 8^-e], and the
// bits after the first one divide that interval evenly: the map is fine beside the largest element and spans six or
// seven decades. A code M > 0 with its first one at bit n = W - 1 - e is the number 8^-e (7 (M + 1) 2^-n - 6) / 8. The
// code of all ones is 1: the largest element keeps its value, and what was decoded is encoded to the same code again.
//
// Only operations that are rounded once and the same on every device: + - * / of floats, and of their bits as integers.

#include <bit>
#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::formula {

inline constexpr int kQuantBlock = 256;

constexpr int64_t quant_blocks(int64_t n) { return (n + kQuantBlock - 1) / kQuantBlock; }
/// An array lies in memory as its codes, then its scales, f32, from this byte on.
constexpr int64_t quant_scales_at(int64_t n) { return (n + 3) / 4 * 4; }
constexpr int64_t quant_bytes(int64_t n) { return quant_scales_at(n) + 4 * quant_blocks(n); }

/// How a block is written.
struct QuantScale {
  /// NaN for a block that holds an infinity or a NaN: all of it is NaN then. 0 for one whose largest number is
  /// subnormal
  float scale;
  /// 0 for such blocks, and all of their codes are 0. Too small by a few roundings, so that no product with it reaches
  /// 1
  float inverse;
};

/// From the bits of the largest magnitude: those of floats >= 0 are ordered like the floats, and NaNs come last.
LORRY_INLINE QuantScale quant_scale(uint32_t largest) {
  if (largest >= 0x7f800000u) return {std::bit_cast<float>(0x7fc00000u), 0};
  if (largest < 0x00800000u) return {0, 0};
  const float scale = std::bit_cast<float>(largest);
  return {scale, 1.0f / scale * (1 - 0x1p-22f)};
}

/// Codes with a sign in bit 7, or of numbers >= 0.
template <bool kSigned>
struct QuantCode {
  static constexpr int kWidth = kSigned ? 7 : 8;

  /// The number of the map. Exact.
  static LORRY_INLINE float decode(uint32_t code) {
    const uint32_t m = kSigned ? code & 0x7fu : code;
    const float number = std::bit_cast<float>(0x4b000000u | m) - 0x1p23f;                     // m
    const float first = std::bit_cast<float>(std::bit_cast<uint32_t>(number) & 0x7f800000u);  // its first one, 2^n
    const float magnitude = first * first * (7 * number + 7 - 6 * first) * (1.0f / (uint32_t{8} << (3 * (kWidth - 1))));
    if constexpr (kSigned)
      return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (code & 0x80u) << 24);
    else
      return magnitude;
  }

  /// M is a linear function of the numbers of one exponent, 2^n (8^(e+1) x + 6) / 7 - 1, rounded: half is added, and
  /// what is left of the point is cut off. kPoint brings the point between the second and the last byte of the sum.
  struct Line {
    float slope, start;
  };
  static constexpr float kPoint = 0x1.8p15f;
  /// Below the map is zero; without a sign it is its least number, but for what is 2^-126 of the largest or less: what
  /// divides by the number stays as finite as it was.
  static LORRY_INLINE Line line(uint32_t exponent) {
    const uint32_t e = (126 - exponent) * 43 >> 7;  // a third, of numbers below 24
    if (exponent < 127 - 3 * (kSigned ? kWidth : kWidth - 1))
      return {0, kSigned || exponent == 0 ? kPoint : kPoint + 1};
    return {std::bit_cast<float>(std::bit_cast<uint32_t>(8.0f / 7 * (1 << (kWidth - 1))) + (e << 24)),
            std::bit_cast<float>(std::bit_cast<uint32_t>(6.0f / 7 * (1 << (kWidth - 1))) - (e << 23)) - 0.5f + kPoint};
  }
  /// The nearest M, to a 256th of a step, in the last byte but one.
  static LORRY_INLINE uint32_t magnitude(float ratio, const Line& line) {
    return std::bit_cast<uint32_t>(ratio * line.slope + line.start);
  }

  static LORRY_INLINE uint32_t encode(float value, const QuantScale& by) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const float ratio = std::bit_cast<float>(bits & 0x7fffffffu) * by.inverse;
    const uint32_t m = magnitude(ratio, line(std::bit_cast<uint32_t>(ratio) >> 23)) >> 8 & 0xffu;
    return by.inverse == 0 ? 0 : kSigned ? m | (bits >> 24 & 0x80u) : m;
  }
};

}  // namespace lorry::formula
