#pragma once

// The elementary functions on Vec<float> and Vec<double>. Functions on which training spends its time (exp, expm1, log,
// log1p, tanh, erf in f32) and simple ones are vector code; the others call <cmath> for each lane. Errors of the vector
// code, against a long double oracle in tests/ops/pointwise_values_test.cpp, are at most 4 units in the last place.
// Special values (NaN, infinities, signed zeros, subnormals) are treated as in C.

#include <hwy/contrib/math/math-inl.h>

#include <limits>

#include "lorry/kernels/cpu/common/vec.h"

namespace lorry::kernels::cpu::LORRY_SIMD {

namespace detail {

/// The bit layout of T, and the constants that depend on it.
template <class T>
struct Real;
template <>
struct Real<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr int kBias = 127;
  static constexpr double kShift = 0x1p23;        ///< adding it puts an integer into the low bits
  static constexpr Bits kRootHalf = 0x3f3504f3u;  ///< sqrt(1/2)
  static constexpr double kLn2High = 0x1.62e3p-1,
                          kLn2Low = 9.0580006145e-06;  // the high part times any exponent is exact
  static constexpr double kLog2of10High = 3.0102920532e-01, kLog2of10Low = 7.9034151668e-07;  // of log10(2)
  static constexpr double kExpLow = -104, kExpHigh = 89, kExpm1Low = -20, kExp2Low = -151, kExp2High = 129;
  static constexpr double kTanhOne = 10, kSinhSmall = 1;
};
template <>
struct Real<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr int kBias = 1023;
  static constexpr double kShift = 0x1p52;
  static constexpr Bits kRootHalf = 0x3fe6a09e00000000u;
  static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kLog2of10High = 3.01029995663611771306e-01, kLog2of10Low = 3.69423907715893078616e-13;
  static constexpr double kExpLow = -746, kExpHigh = 710, kExpm1Low = -40, kExp2Low = -1080, kExp2High = 1025;
  static constexpr double kTanhOne = 22, kSinhSmall = 1;
};

/// a * b + c, fused if the processor can. Only for polynomials, whose error does not depend on it.
template <class T>
LORRY_INLINE Vec<T> mad(Vec<T> a, Vec<T> b, Vec<T> c) {
  return Vec<T>(hn::MulAdd(a.raw, b.raw, c.raw));
}

/// Coefficients from the highest power down, by Horner's rule.
template <class T, class... Cs>
LORRY_INLINE Vec<T> polynomial(Vec<T> x, double highest, Cs... rest) {
  Vec<T> sum(highest);
  ((sum = mad(sum, x, Vec<T>(rest))), ...);
  return sum;
}

template <class T>
LORRY_INLINE auto bits(Vec<T> x) {
  return hn::BitCast(hn::RebindToUnsigned<typename Vec<T>::Tag>(), x.raw);
}
template <class T, class U>
LORRY_INLINE Vec<T> from_bits(U u) {
  return Vec<T>(hn::BitCast(typename Vec<T>::Tag(), u));
}

/// 2^n for an integer n with a normal result: n + bias is in the low bits and is shifted to the exponent.
template <class T>
LORRY_INLINE Vec<T> power_of_two(Vec<T> n) {
  using R = Real<T>;
  return from_bits<T>(hn::ShiftLeft<R::kMantissa>(bits(n + Vec<T>(1.5 * R::kShift + R::kBias))));
}
/// x * 2^n in two multiplications, so that overflow and subnormals are correct.
template <class T>
LORRY_INLINE Vec<T> scale(Vec<T> x, Vec<T> n) {
  const Vec<T> half = round(n * Vec<T>(0.5));
  return x * power_of_two(half) * power_of_two(n - half);
}

/// exp(r) - 1 for |r| <= ln(2) / 2. Coefficients: Highway's, minimax for f32 and f64.
LORRY_INLINE Vec<float> expm1_near_0(Vec<float> r) {
  const Vec<float> p =
      polynomial(r, 0.000198527617612853646278381, 0.00139304355252534151077271, 0.00833336077630519866943359,
                 0.0416664853692054748535156, 0.166666671633720397949219, 0.5);
  return mad(p, r * r, r);
}
LORRY_INLINE Vec<double> expm1_near_0(Vec<double> r) {
  const Vec<double> p =
      polynomial(r, 2.08860621107283687536341e-9, 2.51112930892876518610661e-8, 2.75573911234900471893338e-7,
                 2.75572362911928827629423e-6, 2.4801587159235472998791e-5, 0.000198412698960509205564975,
                 0.00138888888889774492207962, 0.00833333333331652721664984, 0.0416666666666665047591422,
                 0.166666666666666851703837, 0.5);
  return mad(p, r * r, r);
}

/// x = n ln(2) + r with |r| <= ln(2) / 2.
template <class T>
LORRY_INLINE void reduce_exp(Vec<T> x, Vec<T>& n, Vec<T>& r) {
  n = round(x * Vec<T>(1.44269504088896340736));
  r = mad(-n, Vec<T>(Real<T>::kLn2Low), mad(-n, Vec<T>(Real<T>::kLn2High), x));
}

template <class T>
LORRY_INLINE Vec<T> clamp(Vec<T> x, double low, double high) {
  const Vec<T> a = select(x < Vec<T>(low), Vec<T>(low), x);
  return select(a > Vec<T>(high), Vec<T>(high), a);
}

/// log(m) for the mantissa m in [sqrt(1/2), sqrt(2)), less f = m - 1: the part that needs fewer bits. FreeBSD's
/// e_log.c, e_logf.c.
template <class T>
LORRY_INLINE Vec<T> log_tail(Vec<T> f) {
  const Vec<T> s = f / (Vec<T>(2) + f), z = s * s;
  Vec<T> r;
  if constexpr (std::same_as<T, float>)
    r = z * polynomial(z, 0xf89e26.0p-26, 0x91e9ee.0p-25, 0xccce13.0p-25, 0xaaaaaa.0p-24);
  else
    r = z * polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                       2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                       6.666666666666735130e-01);
  const Vec<T> half_square = Vec<T>(0.5) * f * f;
  return s * (half_square + r) - half_square;
}

/// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x.
template <class T>
LORRY_INLINE void split(Vec<T> x, Vec<T>& e, Vec<T>& f) {
  using R = Real<T>;
  using U = typename R::Bits;
  const hn::RebindToUnsigned<typename Vec<T>::Tag> du;
  const Mask<T> subnormal = x < Vec<T>(std::numeric_limits<T>::min());
  x = select(subnormal, x * Vec<T>(R::kShift * 4), x);
  constexpr U kOne = U{R::kBias} << R::kMantissa;
  const auto shifted = hn::Add(bits(x), hn::Set(du, static_cast<U>(kOne - R::kRootHalf)));
  // The exponent, converted to a number by putting it into the low bits of 2^mantissa.
  const auto exponent = hn::Or(hn::ShiftRight<R::kMantissa>(shifted), bits(Vec<T>(R::kShift)));
  e = from_bits<T>(exponent) -
      select(subnormal, Vec<T>(R::kShift + R::kBias + R::kMantissa + 2), Vec<T>(R::kShift + R::kBias));
  const auto mantissa = hn::And(shifted, hn::Set(du, static_cast<U>((U{1} << R::kMantissa) - 1)));
  f = from_bits<T>(hn::Add(mantissa, hn::Set(du, R::kRootHalf))) - Vec<T>(1);
}

/// The logarithm of an x outside (0, inf).
template <class T>
LORRY_INLINE Vec<T> log_limits(Vec<T> x, Vec<T> inside) {
  const Vec<T> at_zero = select(x == Vec<T>(0), Vec<T>(-INFINITY), Vec<T>(NAN));
  const Vec<T> above = select(x == Vec<T>(INFINITY), x, inside);
  return select(x > Vec<T>(0), above, select(x != x, x, at_zero));
}

/// Arguments for which the argument reduction of the vector sin and cos is not exact enough: large ones, infinities and
/// NaN.
template <class T>
LORRY_INLINE Mask<T> beyond_reduction(Vec<T> x) {
  return !(abs(x) < Vec<T>(30000));
}

/// `fast`, with `exact(x)` in the lanes of `mask`. Each lane is selected by its own value, never by its neighbours'.
template <class T, class F>
LORRY_INLINE Vec<T> with_exact_lanes(Mask<T> mask, Vec<T> fast, F exact, Vec<T> x) {
  if (any(mask)) [[unlikely]]
    return select(mask, lanewise<T>(exact, select(mask, x, Vec<T>(0))), fast);
  return fast;
}

}  // namespace detail

template <class T>
LORRY_INLINE Vec<T> exp(Vec<T> x) {
  Vec<T> n, r;
  detail::reduce_exp(detail::clamp(x, detail::Real<T>::kExpLow, detail::Real<T>::kExpHigh), n, r);
  return detail::scale(Vec<T>(1) + detail::expm1_near_0(r), n);
}

template <class T>
LORRY_INLINE Vec<T> exp2(Vec<T> x) {
  const Vec<T> inside = detail::clamp(x, detail::Real<T>::kExp2Low, detail::Real<T>::kExp2High), n = round(inside);
  return detail::scale(Vec<T>(1) + detail::expm1_near_0((inside - n) * Vec<T>(0.69314718055994530942)), n);
}

/// (exp(r) - 1 + (1 - 2^-n)) 2^n: the middle term is exact, so that small x keep their relative accuracy.
template <class T>
LORRY_INLINE Vec<T> expm1(Vec<T> x) {
  Vec<T> n, r;
  detail::reduce_exp(detail::clamp(x, detail::Real<T>::kExpm1Low, detail::Real<T>::kExpHigh), n, r);
  const Vec<T> sum = detail::expm1_near_0(r) + (Vec<T>(1) - detail::scale(Vec<T>(1), -n));
  return copysign(detail::scale(sum, n), x);
}

template <class T>
LORRY_INLINE Vec<T> log(Vec<T> x) {
  using R = detail::Real<T>;
  Vec<T> e, f;
  detail::split(x, e, f);
  const Vec<T> low = detail::log_tail(f) + e * Vec<T>(R::kLn2Low);
  return detail::log_limits(x, e * Vec<T>(R::kLn2High) + (f + low));
}

template <class T>
LORRY_INLINE Vec<T> log2(Vec<T> x) {
  Vec<T> e, f;
  detail::split(x, e, f);
  return detail::log_limits(x, e + (f + detail::log_tail(f)) * Vec<T>(1.44269504088896340736));
}

template <class T>
LORRY_INLINE Vec<T> log10(Vec<T> x) {
  using R = detail::Real<T>;
  Vec<T> e, f;
  detail::split(x, e, f);
  const Vec<T> low = e * Vec<T>(R::kLog2of10Low) + (f + detail::log_tail(f)) * Vec<T>(0.43429448190325182765);
  return detail::log_limits(x, e * Vec<T>(R::kLog2of10High) + low);
}

/// log(u) for u = 1 + x rounded, corrected by what the rounding lost. FreeBSD's s_log1p.c.
template <class T>
LORRY_INLINE Vec<T> log1p(Vec<T> x) {
  using R = detail::Real<T>;
  const Vec<T> u = Vec<T>(1) + x;
  Vec<T> e, f;
  detail::split(u, e, f);
  const Vec<T> lost = (x - (u - Vec<T>(1))) / u;
  const Vec<T> low = detail::log_tail(f) + (e * Vec<T>(R::kLn2Low) + lost);
  const Vec<T> inside = e * Vec<T>(R::kLn2High) + (f + low);
  return select(x == Vec<T>(0), x, detail::log_limits(u, inside));
}

template <class T>
LORRY_INLINE Vec<T> tanh(Vec<T> x) {
  const Vec<T> one(1), two(2), most(detail::Real<T>::kTanhOne), magnitude = abs(x);
  const Vec<T> t = expm1(two * select(magnitude > most, most, magnitude));
  return copysign(t / (t + two), x);
}

/// Large arguments square exp(|x| / 2), which does not overflow before the result does.
template <class T>
LORRY_INLINE Vec<T> sinh(Vec<T> x) {
  const Vec<T> magnitude = abs(x), half = exp(magnitude * Vec<T>(0.5));
  const Vec<T> t = expm1(select(magnitude > Vec<T>(1), Vec<T>(1), magnitude));
  const Vec<T> small = Vec<T>(0.5) * (t + t / (t + Vec<T>(1)));
  const Vec<T> large = Vec<T>(0.5) * half * half - Vec<T>(0.5) / (half * half);
  return copysign(select(magnitude < Vec<T>(1), small, large), x);
}
template <class T>
LORRY_INLINE Vec<T> cosh(Vec<T> x) {
  const Vec<T> half = exp(abs(x) * Vec<T>(0.5));
  return Vec<T>(0.5) * half * half + Vec<T>(0.5) / (half * half);
}

template <class T>
LORRY_INLINE Vec<T> sin(Vec<T> x) {
  const Vec<T> fast = select(x == Vec<T>(0), x, Vec<T>(hn::Sin(typename Vec<T>::Tag(), x.raw)));
  return detail::with_exact_lanes(
      detail::beyond_reduction(x), fast, [](T v) { return std::sin(v); }, x);
}
template <class T>
LORRY_INLINE Vec<T> cos(Vec<T> x) {
  const Vec<T> fast(hn::Cos(typename Vec<T>::Tag(), x.raw));
  return detail::with_exact_lanes(
      detail::beyond_reduction(x), fast, [](T v) { return std::cos(v); }, x);
}
template <class T>
LORRY_INLINE Vec<T> asin(Vec<T> x) {
  return Vec<T>(hn::Asin(typename Vec<T>::Tag(), x.raw));
}
template <class T>
LORRY_INLINE Vec<T> acos(Vec<T> x) {
  return Vec<T>(hn::Acos(typename Vec<T>::Tag(), x.raw));
}
template <class T>
LORRY_INLINE Vec<T> atan(Vec<T> x) {
  return Vec<T>(hn::Atan(typename Vec<T>::Tag(), x.raw));
}

/// Two ranges: a polynomial in x^2, and 1 - exp of a polynomial. N. Juffa, maximum error 1 ulp.
LORRY_INLINE Vec<float> erf(Vec<float> x) {
  using V = Vec<float>;
  const V t = select(abs(x) > V(4), V(4), abs(x)), square = t * t;
  const V a = detail::polynomial(t, -1.72853470e-5, 3.83197126e-4),
          b = detail::polynomial(t, -3.88396438e-3, 2.42546219e-2);
  const V p =
      detail::mad(detail::mad(detail::mad(detail::mad(a, square, b), t, V(-1.06777877e-1)), t, V(-6.34846687e-1)), t,
                  V(-1.28717512e-1));
  const V tail = V(1) - exp(detail::mad(p, t, -t));
  const V q = detail::polynomial(square, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1,
                                 1.28379166e-1);
  return copysign(select(t > V(0.927734375), tail, detail::mad(q, t, t)), x);
}
LORRY_INLINE Vec<double> erf(Vec<double> x) {
  return lanewise<double>([](double v) { return std::erf(v); }, x);
}
template <class T>
LORRY_INLINE Vec<T> erfc(Vec<T> x) {
  return lanewise<T>([](T v) { return std::erfc(v); }, x);
}
template <class T>
LORRY_INLINE Vec<T> tan(Vec<T> x) {
  return lanewise<T>([](T v) { return std::tan(v); }, x);
}
template <class T>
LORRY_INLINE Vec<T> pow(Vec<T> x, Vec<T> y) {
  return lanewise<T>([](T a, T b) { return std::pow(a, b); }, x, y);
}
template <class T>
LORRY_INLINE Vec<T> atan2(Vec<T> y, Vec<T> x) {
  return lanewise<T>([](T a, T b) { return std::atan2(a, b); }, y, x);
}
template <class T>
LORRY_INLINE Vec<T> fmod(Vec<T> x, Vec<T> y) {
  return lanewise<T>([](T a, T b) { return std::fmod(a, b); }, x, y);
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
