#pragma once

// Codes of 8 bits that stand for numbers: int8 with a scale and a zero point, and the two 8-bit floats of the OCP 8-bit
// Floating Point Specification (OFP8, revision 1.0, 2023), of which e4m3 is the form without infinities. All are
// written from f32, and round to nearest even.
//
// Only operations that are rounded once and the same on every device: + and * of floats, and of their bits as integers.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lorry/base/macros.h"
#include "lorry/formula/code_format.h"

namespace lorry::formula {

/// The signed byte nearest to ratio + zero_point, where ratio is x / scale; the two are added after rounding. What no
/// byte can hold becomes -128 or 127. A NaN becomes the zero point. zero_point: at most 2^20 in size.
LORRY_INLINE int32_t int8_code(float ratio, int32_t zero_point) {
  constexpr float kFar = 512;          // beyond it, every zero point gives the first or the last code
  constexpr float kRound = 0x1.8p23f;  // a sum with it has no bits behind the point
  float near = ratio == ratio ? ratio : 0.0f;
  near = near < -kFar ? -kFar : near > kFar ? kFar : near;
  const int32_t code =
      static_cast<int32_t>(std::bit_cast<uint32_t>(near + kRound) - std::bit_cast<uint32_t>(kRound)) + zero_point;
  return code < -128 ? -128 : code > 127 ? 127 : code;
}

/// The number of a code.
LORRY_INLINE float int8_value(int32_t code, int32_t zero_point, float scale) {
  return static_cast<float>(code - zero_point) * scale;
}

/// A float of 8 bits: a sign, `kExponent` bits of exponent, `kMantissa` of mantissa. kLargest: the bits of the f32 from
/// which on a magnitude has the code kOver.
template <int kExponent, int kMantissa, uint32_t kLargest, uint32_t kOver>
struct Float8Code {
  static_assert(kExponent + kMantissa == 7);
  static constexpr int kBias = (1 << (kExponent - 1)) - 1, kShift = 23 - kMantissa;
  static constexpr bool kInfinities = kOver == ((1u << kExponent) - 1) << kMantissa;
  static constexpr uint32_t kNaN = 0x7f;
  static constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
  /// A float whose last bit is the distance between two subnormal codes: a sum with it ends in the nearest code.
  static constexpr uint32_t kSubnormals = static_cast<uint32_t>(127 + 1 - kBias - kMantissa + 23) << 23;

  static LORRY_INLINE uint32_t encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
    const uint32_t half = (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u);
    const uint32_t normal = ((magnitude + half) >> kShift) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kSubnormals)) - kSubnormals;
    const uint32_t number = magnitude < kLeastNormal ? subnormal : magnitude < kLargest ? normal : kOver;
    return (magnitude > 0x7f800000u ? kNaN : number) | (bits >> 24 & 0x80u);
  }

  /// The number of a code. Exact.
  static LORRY_INLINE float decode(uint32_t code) {
    const uint32_t m = code & 0x7fu;
    const uint32_t normal = (m << kShift) + (static_cast<uint32_t>(127 - kBias) << 23);
    // m times the distance between two subnormal codes
    const float subnormal = static_cast<float>(static_cast<int32_t>(m)) *
                            std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - kBias - kMantissa) << 23);
    uint32_t magnitude = m < 1u << kMantissa ? std::bit_cast<uint32_t>(subnormal) : normal;
    if constexpr (kInfinities) {
      magnitude = m > kOver ? 0x7fc00000u : m == kOver ? 0x7f800000u : magnitude;
    } else {
      magnitude = m == kNaN ? 0x7fc00000u : magnitude;
    }
    return std::bit_cast<float>(magnitude | (code & 0x80u) << 24);
  }
};

/// From 448 on everything is 448.
using E4M3 = Float8Code<4, 3, std::bit_cast<uint32_t>(448.0f), 0x7e>;
/// 61440 lies in the middle between the largest number and the next power of two, and rounds to the latter.
using E5M2 = Float8Code<5, 2, std::bit_cast<uint32_t>(61440.0f), 0x7c>;

/// The code of a float format.
template <CodeFormat kFormat>
using Float8Of = std::conditional_t<kFormat == CodeFormat::e4m3, E4M3, E5M2>;

/// x as the code of a format. inverse: 1 / scale. int8 codes are the low byte.
template <CodeFormat kFormat>
LORRY_INLINE uint32_t encode(float x, float inverse, [[maybe_unused]] int32_t zero_point) {
  if constexpr (kFormat == CodeFormat::int8)
    return static_cast<uint32_t>(int8_code(x * inverse, zero_point)) & 0xffu;
  else
    return Float8Of<kFormat>::encode(x * inverse);
}

/// The number of a code.
template <CodeFormat kFormat>
LORRY_INLINE float decode(uint32_t code, float scale, [[maybe_unused]] int32_t zero_point) {
  if constexpr (kFormat == CodeFormat::int8)
    return int8_value(static_cast<int8_t>(code), zero_point, scale);
  else
    return Float8Of<kFormat>::decode(code) * scale;
}

/// The largest number of a format: what the largest magnitude of a tensor is scaled to.
constexpr float largest_of(CodeFormat format) {
  return format == CodeFormat::int8 ? 127.0f : format == CodeFormat::e4m3 ? 448.0f : 57344.0f;
}

}  // namespace lorry::formula
