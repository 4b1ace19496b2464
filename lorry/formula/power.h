#pragma once

// Powers of positive numbers with the same bits on every device and with every compiler, for what optimizers carry from
// step to step. They use + - * / fma and bits alone, each rounded once, unlike pow, which every library rounds in its
// own way.

#include <bit>
#include <cstdint>
#include <limits>

#include "lorry/formula/scalar.h"

// On a device a power is taken once a step, by one thread: inlined it would cost the whole kernel its registers.
#if defined(__CUDA_ARCH__)
#define LORRY_SELDOM LORRY_HOST_DEVICE __noinline__ inline
#else
#define LORRY_SELDOM LORRY_HOST_DEVICE inline
#endif

namespace lorry::formula {

/// A natural logarithm, hi + lo, within 2^-76 of its size.
struct Logarithm {
  double hi, lo;
};

namespace power_parts {
// ln 2 in two parts: the first has 40 bits, so that its product with an exponent is exact.
inline constexpr double kLn2 = 0x1.62e42fefa2p-1, kLn2Rest = 0x1.9ef35793c7673p-41;
}  // namespace power_parts

/// Of a positive, finite x = m 2^e with m in [sqrt(1/2), sqrt(2)): e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), |s| <
/// 0.172. Of the series 2 s (1 + s^2/3 + s^4/5 + ...) the terms up to s^6 / 7 are summed in pairs of doubles, the
/// others are too small to need it.
LORRY_SELDOM Logarithm logarithm(double x) {
  const double scale = x < 0x1p-1022 ? 54 : 0;  // a subnormal number is made a normal one
  if (scale != 0) x *= 0x1p54;
  const int64_t bits = static_cast<int64_t>(std::bit_cast<uint64_t>(x)) - 0x3fe6a09e667f3bcd;
  const double e = static_cast<double>(bits >> 52) - scale;
  const double m = std::bit_cast<double>(static_cast<uint64_t>((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd));

  const double f = m - 1, above = 2 + f, above_lo = (2 - above) + f;
  const double s = f / above, s_lo = (fma(-s, above, f) - s * above_lo) / above;
  const double z = s * s, z_lo = fma(s, s, -z) + 2 * s * s_lo;

  constexpr double kTail[] = {1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19,
                              1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9};
  double p = 0, p_lo = 0;
  for (const double c : kTail) p = p * z + c;
  const auto next = [&](double c, double c_lo) {  // p = c + z p
    const double product = z * p, sum = c + product;
    p_lo = (c - sum) + product + (fma(z, p, -product) + (z * p_lo + z_lo * p) + c_lo);
    p = sum;
  };
  next(0x1.2492492492492p-3, 0x1.2492492492492p-57);   // 1/7
  next(0x1.999999999999ap-3, -0x1.999999999999ap-57);  // 1/5
  next(0x1.5555555555555p-2, 0x1.5555555555555p-56);   // 1/3
  next(1, 0);

  const double series = 2 * s * p, series_lo = fma(2 * s, p, -series) + 2 * (s * p_lo + s_lo * p);
  const double whole = e * power_parts::kLn2, sum = whole + series;  // whole is 0 or the larger one
  const double low = ((whole - sum) + series) + (e * power_parts::kLn2Rest + series_lo);
  const double hi = whole == 0 ? series : sum, lo = whole == 0 ? series_lo : low;
  return {hi + lo, (hi - (hi + lo)) + lo};
}

/// e^(exponent * log), within 0.52 units in the last place where the result is normal. exponent: finite.
LORRY_SELDOM double power(Logarithm log, double exponent) {
  const double t = exponent * log.hi;
  if (t > 710) return std::numeric_limits<double>::infinity();
  if (t < -746) return 0;
  const double t_lo = fma(exponent, log.hi, -t) + exponent * log.lo;

  // t = n ln 2 + r + r_lo with |r| < 0.347; adding 1.5 * 2^52 rounds to a whole number.
  const double n = (t * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;
  const double a = t - n * power_parts::kLn2, b = t_lo - n * power_parts::kLn2Rest;
  const double r = a + b, r_lo = (a - r) + b;

  // e^r = 1 + r + r^2/2 + the rest of the series, whose rounding does not matter any more.
  constexpr double kRest[] = {1 / 1307674368000., 1 / 87178291200., 1 / 6227020800., 1 / 479001600., 1 / 39916800.,
                              1 / 3628800.,       1 / 362880.,      1 / 40320.,      1 / 5040.,      1 / 720.,
                              1 / 120.,           1 / 24.,          1 / 6.};
  double rest = 0;
  for (const double c : kRest) rest = rest * r + c;
  const double half = 0.5 * (r * r), half_lo = 0.5 * fma(r, r, -(r * r));
  const double one = 1 + r, one_lo = (1 - one) + r;
  const double two = one + half, two_lo = (one - two) + half;
  const double value = two + ((rest * r * (r * r) + half_lo) + (two_lo + one_lo) + r_lo * two);

  const auto two_to = [](int64_t k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); };
  const auto whole = static_cast<int64_t>(n);
  return value * two_to(whole / 2) * two_to(whole - whole / 2);  // one factor might not be a double
}

/// base^exponent for a positive, finite base and a finite exponent; NaN for any other base.
LORRY_INLINE double power(double base, double exponent) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!(base > 0 && base < kInfinity)) return std::numeric_limits<double>::quiet_NaN();
  return power(logarithm(base), exponent);
}

}  // namespace lorry::formula
