#pragma once

// Distributions from random words. Every function uses only integer operations and single +, -, *, / and sqrt, which IEEE
// 754 rounds exactly, and no fma: with contraction off (-ffp-contract=off, -fmad=false) all devices give the same bits.

#include <bit>
#include <cmath>
#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::formula {

/// [0, 1) in steps of 2^-24, the spacing of f32 just below 1: every value is exact and 1 is never reached.
LORRY_INLINE float unit_f32(uint32_t word) { return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f; }
/// [0, 1) in steps of 2^-53.
LORRY_INLINE double unit_f64(uint32_t low, uint32_t high) {
  const uint64_t word = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<double>(static_cast<int64_t>(word >> 11)) * 0x1p-53;
}

/// [0, 1) in steps of 2^-kDigits, for a type whose significand has that many bits.
template <int kDigits>
LORRY_INLINE float unit_of_digits(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> (32 - kDigits))) * (1.0f / (1 << kDigits));
}
/// low + unit (high - low), and low where that rounds up to high; range is high - low.
template <class T>
LORRY_INLINE T stretch(T unit, T low, T range, T high) {
  const T value = unit * range + low;
  return value < high ? value : low;
}

/// Natural logarithm of a normal x in (0, 1], within 1.5 units in the last place. Cephes logf (Moshier 1989): x = m 2^e with m
/// in [sqrt(1/2), sqrt(2)), then a polynomial in m - 1.
LORRY_INLINE float log_unit(float x) {
  // Subtracting the bits of sqrt(1/2) leaves in the upper nine bits the exponent e for which m lies in that interval.
  const int32_t bits = static_cast<int32_t>(std::bit_cast<uint32_t>(x)) - 0x3f3504f3;
  const int32_t exponent = bits >> 23;
  const float m = std::bit_cast<float>(static_cast<uint32_t>((bits & 0x007fffff) + 0x3f3504f3));
  const float f = m - 1.0f, z = f * f, e = static_cast<float>(exponent);
  float y = 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  y = y * f * z;
  y = y - 2.12194440e-4f * e;  // ln 2 = 0.693359375 - 2.12194440e-4; the first product is exact
  y = y - 0.5f * z;
  return f + y + 0.693359375f * e;
}

/// The same in f64. FreeBSD msun e_log (Sun Microsystems 1993): with s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)).
LORRY_INLINE double log_unit(double x) {
  const int64_t bits = static_cast<int64_t>(std::bit_cast<uint64_t>(x)) - 0x3fe6a09e667f3bcd;
  const int64_t exponent = bits >> 52;
  const double m = std::bit_cast<double>(static_cast<uint64_t>((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd));
  const double f = m - 1.0, e = static_cast<double>(exponent);
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f, r = even + odd;
  return e * 6.93147180369123816490e-01 - ((half_square - (s * (half_square + r) + e * 1.90821492927058770002e-10)) - f);
}

template <class T>
struct SinCos {
  T sin, cos;
};

/// sin and cos of `word` / 2^32 turns. The nearest quarter turn is removed in integers, exactly; the rest, at most an eighth
/// of a turn, goes to Cephes' polynomials.
LORRY_INLINE SinCos<float> sincos_turns(uint32_t word) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(word - (quarter << 30))) * 1.46291807926715968e-9f;  // 2 pi / 2^32
  const float z = x * x;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float cosine = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  const bool swap = (quarter & 1u) != 0;
  const float s = swap ? cosine : sine, c = swap ? sine : cosine;
  return {(quarter & 2u) != 0 ? -s : s, ((quarter + 1u) & 2u) != 0 ? -c : c};
}

/// The same in f64 for `word` / 2^64 turns, with msun's k_sin and k_cos.
LORRY_INLINE SinCos<double> sincos_turns(uint64_t word) {
  const uint64_t quarter = (word + 0x2000000000000000u) >> 62;
  const double x = static_cast<double>(static_cast<int64_t>(word - (quarter << 62))) * 3.40612158008655459e-19;  // 2 pi / 2^64
  const double z = x * x;
  double sine = 1.58969099521155010221e-10;
  sine = sine * z - 2.50507602534068634195e-08;
  sine = sine * z + 2.75573137070700676789e-06;
  sine = sine * z - 1.98412698298579493134e-04;
  sine = sine * z + 8.33333333332248946124e-03;
  sine = sine * z - 1.66666666666666324348e-01;
  sine = sine * z * x + x;
  double cosine = -1.13596475577881948265e-11;
  cosine = cosine * z + 2.08757232129817482790e-09;
  cosine = cosine * z - 2.75573143513906633035e-07;
  cosine = cosine * z + 2.48015872894767294178e-05;
  cosine = cosine * z - 1.38888888888741095749e-03;
  cosine = cosine * z + 4.16666666666666019037e-02;
  cosine = cosine * z * z - 0.5 * z + 1.0;
  const bool swap = (quarter & 1u) != 0;
  const double s = swap ? cosine : sine, c = swap ? sine : cosine;
  return {(quarter & 2u) != 0 ? -s : s, ((quarter + 1u) & 2u) != 0 ? -c : c};
}

template <class T>
struct Pair {
  T first, second;
};

/// Two independent standard normals from two words. Box and Muller 1958. The radius comes from (word + 1/2) / 2^32, so the
/// largest magnitude is sqrt(-2 ln 2^-33) = 6.76.
LORRY_INLINE Pair<float> normal_pair(uint32_t radius_word, uint32_t angle_word) {
  const float unit = static_cast<float>(radius_word) * 0x1p-32f + 0x1p-33f;
  const float radius = std::sqrt(-2.0f * log_unit(unit));
  const SinCos<float> angle = sincos_turns(angle_word);
  return {radius * angle.cos, radius * angle.sin};
}

/// The same in f64 from two words of 64 bits.
LORRY_INLINE Pair<double> normal_pair(uint64_t radius_word, uint64_t angle_word) {
  const double unit = static_cast<double>(static_cast<int64_t>(radius_word >> 11)) * 0x1p-53 + 0x1p-54;
  const double radius = std::sqrt(-2.0 * log_unit(unit));
  const SinCos<double> angle = sincos_turns(angle_word);
  return {radius * angle.cos, radius * angle.sin};
}

/// A whole number in [0, range), or any 64-bit number when range is 0: the upper half of word * range. No value is more
/// likely than another by more than range / 2^64.
LORRY_INLINE uint64_t below(uint64_t word, uint64_t range) {
  if (range == 0) return word;
  const uint64_t low = (word & 0xffffffffu) * (range & 0xffffffffu), cross0 = (word >> 32) * (range & 0xffffffffu);
  const uint64_t cross1 = (word & 0xffffffffu) * (range >> 32), high = (word >> 32) * (range >> 32);
  const uint64_t carry = ((low >> 32) + (cross0 & 0xffffffffu) + cross1) >> 32;
  return high + (cross0 >> 32) + carry;
}

}  // namespace lorry::formula
