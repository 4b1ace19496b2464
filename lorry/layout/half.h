#pragma once

// 16-bit storage types. Arithmetic is in f32: the conversion to float is exact, the conversion back rounds to nearest
// even. NaNs are converted as on x86 (the upper bits are kept and the NaN becomes quiet), so scalar and vector code
// give equal bits. On a GPU the hardware converts: numbers are the same, but a NaN may have other bits.

#include <bit>
#include <cstdint>
#include <limits>

#include "lorry/base/macros.h"

namespace lorry {

/// IEEE 754 binary16.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  LORRY_INLINE explicit Float16(float value) : bits(round(value)) {}
  LORRY_INLINE operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) {
      const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
      return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((magnitude & 0x3ffu) << 13));
    }
    // Shift the exponent and mantissa into place and rescale: exact for normals and subnormals alike.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
#endif
  }
  static LORRY_INLINE constexpr Float16 from_bits(uint16_t b) {
    Float16 h;
    h.bits = b;
    return h;
  }

 private:
  static LORRY_INLINE uint16_t round(float value) {
#ifdef __CUDA_ARCH__
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (x >> 16) & 0x8000u;
    const uint32_t magnitude = x & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or above
    if (magnitude < 0x38800000u) {                                               // subnormal half: let the adder round
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t even = (magnitude >> 13) & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + even) >> 13));
#endif
  }
};

/// The upper half of an IEEE 754 binary32.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  LORRY_INLINE explicit BFloat16(float value) {
#ifdef __CUDA_ARCH__
    uint32_t pair;  // on Hopper the conversion of two has four times the throughput of that of one
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
    bits = static_cast<uint16_t>(pair);
#else
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = x + 0x7fffu + ((x >> 16) & 1u);
    bits = static_cast<uint16_t>((x & 0x7fffffffu) > 0x7f800000u ? ((x >> 16) | 0x40u) : (rounded >> 16));
#endif
  }
  LORRY_INLINE operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static LORRY_INLINE constexpr BFloat16 from_bits(uint16_t b) {
    BFloat16 h;
    h.bits = b;
    return h;
  }
};

namespace detail {
/// std::numeric_limits of a 16-bit type with a sign, an exponent whose largest value means infinity or NaN, and
/// digits - 1 bits of fraction.
template <class T, int kDigits, int kMaxExponent>
struct HalfLimits {
#ifndef __CUDACC_RTC__  // which would make each of them a variable of every module, for the driver to load
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false,
                        has_infinity = true, has_quiet_NaN = true;
  static constexpr int radix = 2, digits = kDigits, max_exponent = kMaxExponent, min_exponent = 3 - kMaxExponent;
#endif
  static constexpr T infinity() { return T::from_bits(kInfinity); }
  static constexpr T quiet_NaN() { return T::from_bits(kInfinity | kOne / 2); }
  static constexpr T max() { return T::from_bits(kInfinity - 1); }
  static constexpr T lowest() { return T::from_bits(0x8000 | (kInfinity - 1)); }
  static constexpr T min() { return T::from_bits(kOne); }
  static constexpr T denorm_min() { return T::from_bits(1); }
  static constexpr T epsilon() { return T::from_bits((kMaxExponent - kDigits) * kOne); }

 private:
  enum : uint16_t {
    kOne = 1 << (kDigits - 1),  // the lowest bit of the exponent
    kInfinity = 0x8000 - kOne
  };
};
}  // namespace detail

}  // namespace lorry

template <>
struct std::numeric_limits<lorry::Float16> : lorry::detail::HalfLimits<lorry::Float16, 11, 16> {};
template <>
struct std::numeric_limits<lorry::BFloat16> : lorry::detail::HalfLimits<lorry::BFloat16, 8, 128> {};
