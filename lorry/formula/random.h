#pragma once

// Distributions from random words. Every function uses only integer operations and + - * / sqrt and explicit fma, which
// IEEE 754 rounds exactly: with contraction off (-ffp-contract=off, -fmad=false) all devices give the same bits.

#include <bit>
#include <cmath>
#include <cstdint>

#include "lorry/base/macros.h"
#include "lorry/formula/scalar.h"

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

/// Natural logarithm of a normal x in (0, 1]. FreeBSD msun e_log (Sun Microsystems 1993): x = m 2^e with m in
/// [sqrt(1/2), sqrt(2)), f = m - 1; with s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)).
LORRY_INLINE double log_unit(double x) {
  const int64_t bits = static_cast<int64_t>(std::bit_cast<uint64_t>(x)) - 0x3fe6a09e667f3bcd;
  const int64_t exponent = bits >> 52;
  const double m = std::bit_cast<double>(static_cast<uint64_t>((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd));
  const double f = m - 1.0, e = static_cast<double>(exponent);
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f, r = even + odd;
  return e * 6.93147180369123816490e-01 -
         ((half_square - (s * (half_square + r) + e * 1.90821492927058770002e-10)) - f);
}

// Normals come in pairs, by Box and Muller 1958: a radius sqrt(-2 ln u) and a random direction. The polynomials are
// minimax (Remez), in Horner's form with fma. Their errors, rounding included:
//
//            -2 ln u, relative     cosine and sine, absolute     largest magnitude            directions
//   f32      2^-21                 2^-22                         sqrt(-2 ln 2^-33) = 6.76     2^33
//   f64      2^-51                 2^-51                         sqrt(-2 ln 2^-53) = 8.57     2^52
//
// The angle covers half a turn, and a random sign of the radius the other half: there is nothing to choose, so that
// vectors and warps stay together. About 19 instructions an element on a GPU, beside 10 for the words.

template <class T, class... Cs>
LORRY_INLINE T horner(T x, T highest, Cs... rest) {
  T sum = highest;
  ((sum = fma(sum, x, static_cast<T>(rest))), ...);
  return sum;
}

/// -2 ln u for u = (|word| + 1/4) / 2^31, word signed: the sign stays unused. u is rounded to f32 before; 2^-24 is
/// added to the result, as if u were in the middle of the last step below 1, so that it is never 0.
LORRY_INLINE float radius_squared(uint32_t word) {
  const float x = abs(static_cast<float>(static_cast<int32_t>(word))) + 0.25f;
  // x = 2^31 2^e m with m in [sqrt(1/2), sqrt(2)); `exponent` is e 2^23.
  constexpr int32_t kUnit = 31 << 23, kRootHalf = 0x3f3504f3;
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - (kUnit + kRootHalf)) & static_cast<int32_t>(0xff800000);
  const float f = std::bit_cast<float>(bits - exponent - kUnit) - 1.0f;
  const float p = horner(f, 0.202137922f, -0.324451619f, 0.345016594f, -0.398003308f, 0.499398181f, -0.666701179f,
                         1.0000073f, -1.99999989f);
  return fma(f, p, fma(static_cast<float>(exponent), -2 * 0x1.62e43p-1f * 0x1p-23f, 0x1p-24f));
}

/// -2 ln u for u = (2 k + 1) / 2^53, k the lower 52 bits of the word.
LORRY_INLINE double radius_squared(uint64_t word) {
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd, kMantissa = 0x000fffffffffffff;
  const double u = std::bit_cast<double>((word & kMantissa) | kOne) - (1 - 0x1p-53);
  // u = 2^e m with m in [sqrt(1/2), sqrt(2)); e + 64 becomes a number in the low bits of 2^52.
  const uint64_t above = std::bit_cast<uint64_t>(u) - kRootHalf + (uint64_t{64} << 52);
  const double e = std::bit_cast<double>((above >> 52) | 0x4330000000000000) - (0x1p52 + 64);
  const double f = std::bit_cast<double>((above & kMantissa) + kRootHalf) - 1.0;
  const double p = horner(f, 0.056600730434075708, -0.1267032677927575, 0.13597235809801951, -0.11947750413651403,
                          0.12074315199857446, -0.13241302756492746, 0.14321610575638293, -0.15395803278010505,
                          0.16665028243788331, -0.18181131398300785, 0.20000039130498274, -0.2222224581238638,
                          0.24999999613565064, -0.28571428124114798, 0.33333333332662478, -0.40000000004233418,
                          0.50000000000028753, -0.66666666666651197, 0.99999999999999923, -2.0000000000000001);
  return fma(f, p, e * -0x1.62e42fefa39efp+0);
}

template <class T>
struct Pair {
  T first, second;
};

/// cos and sin of `word` / 2^32 half turns, word signed: the cosine is positive.
LORRY_INLINE Pair<float> direction(uint32_t word) {
  const float t = static_cast<float>(static_cast<int32_t>(word)) * 0x1p-32f, z = t * t;
  return {horner(z, 0.219696799f, -1.33188016f, 4.05841191f, -4.93479286f, 0.999999953f),
          t * horner(z, 0.0776594083f, -0.59829216f, 2.55007766f, -5.16771009f, 3.14159264f)};
}
/// The same of k / 2^52 half turns, k the lower 52 bits of the word, of which the lowest counts as set, less 2^51.
LORRY_INLINE Pair<double> direction(uint64_t word) {
  const double t = std::bit_cast<double>((word & 0x000ffffffffffffe) | 0x3ff0000000000001) - 1.5, z = t * t;
  return {horner(z, 4.1495917001950075e-6, -1.0456658073463613e-4, 1.9295562835919125e-3, -0.025806888739352541,
                 0.2353306301298083, -1.3352627688434646, 4.0587121264164975, -4.9348022005446768, 1.0),
          t * horner(z, 7.6978677829856967e-7, -2.1903501176226613e-5, 4.6629981785617296e-4, -7.3704305062694514e-3,
                     0.082145886573144207, -0.59926452931894731, 2.5501640398773006, -5.1677127800499696,
                     3.1415926535897932)};
}

/// The square root of an x between 2^-60 and 2^60, rounded once. The code that a GPU's compiler makes of sqrt also
/// tests for every other x.
LORRY_INLINE float moderate_sqrt(float x) {
#ifdef __CUDA_ARCH__
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float root = x * r;
  return fma(fma(-root, root, x), 0.5f * r, root);
#else
  return std::sqrt(x);
#endif
}
LORRY_INLINE double moderate_sqrt(double x) { return std::sqrt(x); }

/// Two independent normals of the given mean and standard deviation.
template <class T, class Word>
LORRY_INLINE Pair<T> normal_pair(Word radius_word, Word angle_word, T mean, T std) {
  constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
  const auto length = std::bit_cast<Word>(moderate_sqrt(radius_squared(radius_word)) * std);
  const T radius = std::bit_cast<T>(length ^ (radius_word & kSign));
  const auto [cosine, sine] = direction(angle_word);
  return {fma(radius, cosine, mean), fma(radius, sine, mean)};
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
