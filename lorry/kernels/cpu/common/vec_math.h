#pragma once

// The elementary functions on Vec<float> and Vec<double>: vector code, but for erfc, in f64 pow, atan2 and fmod, and
// tan without fused multiply-adds, which call <cmath> for each lane. Errors of the vector code, against a long double
// oracle in tests/ops/pointwise_values_test.cpp, are at most 4 units in the last place (pow in f32: 1; erf in f64:
// 1.3); fmod is exact. Special values (NaN, infinities, signed zeros, subnormals) are treated as in C.

#include <hwy/contrib/math/math-inl.h>

#include <limits>

#include "lorry/kernels/cpu/common/vec.h"
#include "lorry/kernels/cpu/common/vec_tables.h"

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
  static constexpr double kTanhOne = 10;
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
  static constexpr double kTanhOne = 22;
};

/// a * b + c, fused if the processor can. Only where the error of a result does not depend on it.
template <class T>
LORRY_INLINE Vec<T> mad(Vec<T> a, Vec<T> b, Vec<T> c) {
  return Vec<T>(hn::MulAdd(a.raw, b.raw, c.raw));
}

/// c - a * b, in the same way.
template <class T>
LORRY_INLINE Vec<T> mad_negative(Vec<T> a, Vec<T> b, Vec<T> c) {
  return Vec<T>(hn::NegMulAdd(a.raw, b.raw, c.raw));
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

/// An integer n as it is and as the low bits of a larger number.
template <class T>
struct WholeNumber {
  Vec<T> number, shifted;
};
/// factor * x rounded to the nearest integer, ties to the even one; |factor * x| < kShift / 4.
template <class T>
LORRY_INLINE WholeNumber<T> nearest(Vec<T> x, double factor = 1) {
  const Vec<T> shift(1.5 * Real<T>::kShift), shifted = mad(Vec<T>(factor), x, shift);
  return {shifted - shift, shifted};
}

/// n, shifted to where a number has its exponent.
template <class T>
LORRY_INLINE auto exponent_bits(WholeNumber<T> n) {
  return hn::ShiftLeft<Real<T>::kMantissa>(bits(n.shifted));
}
/// 2^n, which must be normal.
template <class T>
LORRY_INLINE Vec<T> power_of_two(WholeNumber<T> n) {
  return from_bits<T>(hn::Add(exponent_bits(n), bits(Vec<T>(1))));
}
/// x * 2^n, for x and a result that are normal.
template <class T>
LORRY_INLINE Vec<T> scale_normal(Vec<T> x, WholeNumber<T> n) {
  return from_bits<T>(hn::Add(bits(x), exponent_bits(n)));
}
/// x * 2^n, rounded once where it is subnormal.
template <class T>
LORRY_INLINE Vec<T> scale(Vec<T> x, WholeNumber<T> n) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::same_as<T, float>)
    return Vec<T>(hn::VFromD<typename Vec<T>::Tag>{_mm512_scalef_ps(x.raw.raw, n.number.raw.raw)});
  else
    return Vec<T>(hn::VFromD<typename Vec<T>::Tag>{_mm512_scalef_pd(x.raw.raw, n.number.raw.raw)});
#else
  // In two multiplications, because 2^n itself may be no normal number.
  const WholeNumber<T> half = nearest(n.number, 0.5), rest = nearest(n.number - half.number);
  return x * power_of_two(half) * power_of_two(rest);
#endif
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
LORRY_INLINE WholeNumber<T> reduce_exp(Vec<T> x, Vec<T>& r) {
  const WholeNumber<T> n = nearest(x, 1.44269504088896340736);
  r = mad_negative(n.number, Vec<T>(Real<T>::kLn2Low), mad_negative(n.number, Vec<T>(Real<T>::kLn2High), x));
  return n;
}

template <class T>
LORRY_INLINE Vec<T> clamp(Vec<T> x, double low, double high) {
  return at_most(at_least(x, low), high);
}

/// log(m) for the mantissa m in [sqrt(1/2), sqrt(2)), less f = m - 1: the part that needs fewer bits. In f32 a minimax
/// polynomial, with which f + log_tail(f) is within 2^-27 of log(m), relatively, before it is rounded. A division would
/// take longer: with AVX-512, log of 4,096 elements takes 1.4 to 2.1 us instead of 2.7.
LORRY_INLINE Vec<float> log_tail(Vec<float> f) {
  return f * f *
         polynomial(f, -0.0786557547, 0.1287926679, -0.1312527483, 0.141814087, -0.1662497117, 0.200022831,
                    -0.2500079652, 0.3333331678, -0.5);
}
/// In f64 FreeBSD's e_log.c.
LORRY_INLINE Vec<double> log_tail(Vec<double> f) {
  const Vec<double> s = f / (Vec<double>(2) + f), z = s * s;
  const Vec<double> r = z * polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                       2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                       6.666666666666735130e-01);
  const Vec<double> half_square = Vec<double>(0.5) * f * f;
  return s * (half_square + r) - half_square;
}

/// Whether any lane is subnormal, zero, negative, infinite or NaN.
template <class T>
LORRY_INLINE bool any_unusual(Vec<T> x) {
  return any(!((x >= Vec<T>(std::numeric_limits<T>::min())) & (x <= Vec<T>(std::numeric_limits<T>::max()))));
}

/// Whether `split` and log_limits have to be told of unusual lanes in x. With AVX-512 `split` takes any: zero gives e =
/// -inf, infinity e = inf, and a negative number or NaN f = NaN, from which logarithms are right without log_limits.
template <class T>
LORRY_INLINE bool needs_care([[maybe_unused]] Vec<T> x) {
#if HWY_TARGET == HWY_AVX3
  return false;
#else
  return any_unusual(x);
#endif
}

/// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x. If not `is_unusual`, they are normal, or
/// x needs no care.
template <class T>
LORRY_INLINE void split(Vec<T> x, [[maybe_unused]] bool is_unusual, Vec<T>& e, Vec<T>& f) {
  using R = Real<T>;
  using U = typename R::Bits;
  const hn::RebindToUnsigned<typename Vec<T>::Tag> du;
#if HWY_TARGET == HWY_AVX3
  const auto unsigned_zero = (x + Vec<T>(0)).raw.raw;  // +0 for -0
  Vec<T> mantissa;                                     // in [1, 2)
  if constexpr (std::same_as<T, float>) {
    mantissa.raw.raw = _mm512_getmant_ps(unsigned_zero, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
    e.raw.raw = _mm512_getexp_ps(unsigned_zero);
  } else {
    mantissa.raw.raw = _mm512_getmant_pd(unsigned_zero, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
    e.raw.raw = _mm512_getexp_pd(unsigned_zero);
  }
  const Mask<T> above = mantissa >= from_bits<T>(hn::Set(du, static_cast<U>(R::kRootHalf + (U{1} << R::kMantissa))));
  e = select(above, e + Vec<T>(1), e);
  f = select(above, mantissa * Vec<T>(0.5), mantissa) - Vec<T>(1);
#else
  Vec<T> offset(R::kShift + R::kBias);
  if (is_unusual) [[unlikely]] {
    const Mask<T> subnormal = x < Vec<T>(std::numeric_limits<T>::min());
    x = select(subnormal, x * Vec<T>(R::kShift * 4), x);
    offset = select(subnormal, Vec<T>(R::kShift + R::kBias + R::kMantissa + 2), offset);
  }
  constexpr U kOne = U{R::kBias} << R::kMantissa;
  const auto shifted = hn::Add(bits(x), hn::Set(du, static_cast<U>(kOne - R::kRootHalf)));
  // The exponent, converted to a number by putting it into the low bits of 2^mantissa.
  const auto exponent = hn::Or(hn::ShiftRight<R::kMantissa>(shifted), bits(Vec<T>(R::kShift)));
  e = from_bits<T>(exponent) - offset;
  const auto mantissa = hn::And(shifted, hn::Set(du, static_cast<U>((U{1} << R::kMantissa) - 1)));
  f = from_bits<T>(hn::Add(mantissa, hn::Set(du, R::kRootHalf))) - Vec<T>(1);
#endif
}

/// The logarithm of an x outside (0, inf), if any is_unusual.
template <class T>
LORRY_INLINE Vec<T> log_limits(Vec<T> x, bool is_unusual, Vec<T> inside) {
  if (!is_unusual) [[likely]]
    return inside;
  const Vec<T> at_zero = select(x == Vec<T>(0), Vec<T>(-INFINITY), Vec<T>(NAN));
  const Vec<T> above = select(x == Vec<T>(INFINITY), x, inside);
  return select(x > Vec<T>(0), above, select(x != x, x, at_zero));
}

template <class T>
LORRY_INLINE Mask<T> finite(Vec<T> x) {
  return abs(x) < Vec<T>(INFINITY);
}
template <class T>
LORRY_INLINE Mask<T> finite_and_not_zero(Vec<T> x) {
  return finite(x) & (abs(x) > Vec<T>(0));
}

/// Arguments for which the argument reduction of the vector sin and cos is not exact enough: large ones, infinities and
/// NaN.
template <class T>
LORRY_INLINE Mask<T> beyond_reduction(Vec<T> x) {
  return !(abs(x) < Vec<T>(30000));
}

/// `fast`, with exact(x...) in the lanes of `mask`. Each lane is selected by its own value, never by its neighbours'.
template <class T, class F, class... Vs>
LORRY_INLINE Vec<T> with_exact_lanes(Mask<T> mask, Vec<T> fast, F exact, Vs... x) {
  if (any(mask)) [[unlikely]]
    return select(mask, lanewise<T>(exact, select(mask, x, Vec<T>(0))...), fast);
  return fast;
}

/// f of the two halves of x..., computed in f64 and rounded.
template <class F, class... Vs>
LORRY_INLINE Vec<float> in_double(F f, Vs... x) {
  const Vec<double>::Tag wide;
  const hn::Half<Vec<float>::Tag> narrow;
  const Vec<double> low = f(Vec<double>(hn::PromoteTo(wide, hn::LowerHalf(narrow, x.raw)))...),
                    high = f(Vec<double>(hn::PromoteTo(wide, hn::UpperHalf(narrow, x.raw)))...);
  return Vec<float>(hn::Combine(Vec<float>::Tag(), hn::DemoteTo(narrow, high.raw), hn::DemoteTo(narrow, low.raw)));
}

/// tan(y) for |y| <= pi / 8, minimax.
LORRY_INLINE Vec<float> tan_near_0(Vec<float> y) {
  const Vec<float> z = y * y;
  const Vec<float> p = polynomial(z, 0.0107126902542339865, 0.0215431612284262584, 0.0539938936059893441,
                                  0.133332460610233136, 0.333333342944970672);
  return mad(p, z * y, y);
}
LORRY_INLINE Vec<double> tan_near_0(Vec<double> y) {
  const Vec<double> z = y * y;
  const Vec<double> p =
      polynomial(z, 0.000137692620266843908, 0.000223268197636219416, 0.000593397814177773582, 0.00145539621407638793,
                 0.00359216428881054997, 0.00886323361972408862, 0.0218694885982618751, 0.0539682539670955015,
                 0.133333333333344021, 0.333333333333333299);
  return mad(p, z * y, y);
}

/// pi / 2 in three parts: each is the rest, rounded to T.
template <class T>
inline constexpr double kHalfPi[3] = {};
template <>
inline constexpr double kHalfPi<float>[3] = {0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50};
template <>
inline constexpr double kHalfPi<double>[3] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};

/// atan(q) for 0 <= q <= 1, minimax.
LORRY_INLINE Vec<float> atan_of_unit(Vec<float> q) {
  const Vec<float> z = q * q;
  const Vec<float> p = polynomial(z, -0.00179320664068230755, 0.0109127100226078269, -0.0311742435872205574,
                                  0.057953917595861136, -0.0840323363604494089, 0.10952111919084829,
                                  -0.142642278276536455, 0.199985469763288259, -0.333332990342009511);
  return mad(p, z * q, q);
}

}  // namespace detail

template <class T>
LORRY_INLINE Vec<T> exp(Vec<T> x) {
  Vec<T> r;
  const auto n = detail::reduce_exp(detail::clamp(x, detail::Real<T>::kExpLow, detail::Real<T>::kExpHigh), r);
  return detail::scale(Vec<T>(1) + detail::expm1_near_0(r), n);
}

template <class T>
LORRY_INLINE Vec<T> exp2(Vec<T> x) {
  const Vec<T> inside = detail::clamp(x, detail::Real<T>::kExp2Low, detail::Real<T>::kExp2High);
  const auto n = detail::nearest(inside);
  return detail::scale(Vec<T>(1) + detail::expm1_near_0((inside - n.number) * Vec<T>(0.69314718055994530942)), n);
}

namespace detail {
/// exp(x) - 1 = (exp(r) - 1 + (1 - 2^-n)) 2^n: the middle term is exact, so that small x keep their relative accuracy.
/// Of what is multiplied by 2^n; `inverse` is 2^-n.
template <class T>
LORRY_INLINE Vec<T> expm1_part(Vec<T> r, Vec<T> inverse) {
  return expm1_near_0(r) + (Vec<T>(1) - inverse);
}
/// 2^-n, which must be normal.
template <class T>
LORRY_INLINE Vec<T> inverse_power_of_two(WholeNumber<T> n) {
  return from_bits<T>(hn::Sub(bits(Vec<T>(1)), exponent_bits(n)));
}
}  // namespace detail

template <class T>
LORRY_INLINE Vec<T> expm1(Vec<T> x) {
  Vec<T> r;
  const auto n = detail::reduce_exp(detail::clamp(x, detail::Real<T>::kExpm1Low, detail::Real<T>::kExpHigh), r);
  const auto most = detail::nearest(detail::at_most(n.number, 60));  // 1 - 2^-60 is 1
  return copysign(detail::scale(detail::expm1_part(r, detail::inverse_power_of_two(most)), n), x);
}

template <class T>
LORRY_INLINE Vec<T> log(Vec<T> x) {
  using R = detail::Real<T>;
  const bool is_unusual = detail::needs_care(x);
  Vec<T> e, f;
  detail::split(x, is_unusual, e, f);
  const Vec<T> low = detail::log_tail(f) + e * Vec<T>(R::kLn2Low);
  return detail::log_limits(x, is_unusual, e * Vec<T>(R::kLn2High) + (f + low));
}

template <class T>
LORRY_INLINE Vec<T> log2(Vec<T> x) {
  const bool is_unusual = detail::needs_care(x);
  Vec<T> e, f;
  detail::split(x, is_unusual, e, f);
  return detail::log_limits(x, is_unusual, e + (f + detail::log_tail(f)) * Vec<T>(1.44269504088896340736));
}

template <class T>
LORRY_INLINE Vec<T> log10(Vec<T> x) {
  using R = detail::Real<T>;
  const bool is_unusual = detail::needs_care(x);
  Vec<T> e, f;
  detail::split(x, is_unusual, e, f);
  const Vec<T> low = e * Vec<T>(R::kLog2of10Low) + (f + detail::log_tail(f)) * Vec<T>(0.43429448190325182765);
  return detail::log_limits(x, is_unusual, e * Vec<T>(R::kLog2of10High) + low);
}

/// log(u) for u = 1 + x rounded, corrected by what the rounding lost. FreeBSD's s_log1p.c.
template <class T>
LORRY_INLINE Vec<T> log1p(Vec<T> x) {
  using R = detail::Real<T>;
  const Vec<T> u = Vec<T>(1) + x;
  const bool is_unusual = detail::any_unusual(u);  // with AVX-512 too: for u = 0 or inf what was lost is NaN
  Vec<T> e, f;
  detail::split(u, is_unusual, e, f);
  const Vec<T> lost = (x - (u - Vec<T>(1))) / u;
  const Vec<T> low = detail::log_tail(f) + (e * Vec<T>(R::kLn2Low) + lost);
  const Vec<T> inside = e * Vec<T>(R::kLn2High) + (f + low);
  return select(x == Vec<T>(0), x, detail::log_limits(u, is_unusual, inside));
}

/// (exp(2 |x|) - 1) / (exp(2 |x|) + 1), both divided by the power of two in exp.
template <class T>
LORRY_INLINE Vec<T> tanh(Vec<T> x) {
  const Vec<T> two(2);
  Vec<T> r;
  const auto n = detail::reduce_exp(two * detail::at_most(abs(x), detail::Real<T>::kTanhOne), r);
  const Vec<T> inverse = detail::inverse_power_of_two(n), t = detail::expm1_part(r, inverse);
  return copysign(t / detail::mad(two, inverse, t), x);
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

/// Two ranges: a polynomial in x^2, and 1 - exp of a polynomial, both by N. Juffa; the exponent here is to base 2.
/// Of every seventh float from 0.0005 to 4.5 within 1.5 units in the last place, with AVX2 1.4.
LORRY_INLINE Vec<float> erf(Vec<float> x) {
  using V = Vec<float>;
  const V t = detail::at_most(abs(x), 4), square = t * t;
  const V a = detail::polynomial(t, -2.493748440e-05, 5.528365934e-04),
          b = detail::polynomial(t, -5.603376150e-03, 3.499202273e-02);
  const V p = t * detail::mad(detail::mad(detail::mad(detail::mad(a, square, b), t, V(-1.540479136e-01)), t,
                                          V(-9.158901671e-01)),
                              t, V(-1.628395157e+00));
  const auto n = detail::nearest(p);  // from -26 to 0, so that 2^n is normal
  const V power =
      detail::polynomial(p - n.number, 1.32647272e-3, 9.67151269e-3, 5.55073374e-2, 2.40222421e-1, 6.93146978e-1, 1.0);
  const V tail = V(1) - detail::scale_normal(power, n);
  const V q = detail::polynomial(square, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1,
                                 1.28379166e-1);
  return copysign(select(t > V(0.927734375), tail, detail::mad(q, t, t)), x);
}
/// In f64 by table (0.9 ulp), or from the same two ranges, minimax (1.3 ulp).
LORRY_INLINE Vec<double> erf(Vec<double> x) {
#if HWY_TARGET == HWY_AVX3
  return detail::erf_from_table(x);
#else
  using V = Vec<double>;
  const V t = detail::at_most(abs(x), 6);
  const V p = detail::polynomial(t, 1.7615988842499624e-12, -7.7007438169857036e-11, 1.5769569384758127e-09,
                                 -2.0092504844899209e-08, 1.782266974104821e-07, -1.1643247327572637e-06,
                                 5.7554801775052812e-06, -2.1581898915863328e-05, 5.9242476591196534e-05,
                                 -0.0001020591926122248, 1.1598583167680827e-05, 0.00056120461907459914,
                                 -0.0016794205108155652, 0.00020224069057802444, 0.019130290645936365,
                                 -0.10277282469664833, -0.63661979109951727, -0.12837916034143529);
  V r;  // the exponential of a number between -38 and 0 is normal
  const auto n = detail::reduce_exp(V(hn::MulSub(p.raw, t.raw, t.raw)), r);
  const V tail = V(1) - detail::scale_normal(V(1) + detail::expm1_near_0(r), n);
  const V q = detail::polynomial(t * t, -8.2723671335588783e-10, 1.3953474405621678e-08, -1.6257834956758901e-07,
                                 1.6453317060466459e-06, -1.492517330781702e-05, 0.00012055315639073021,
                                 -0.0008548326606942771, 0.0052239776190826058, -0.026866170644556809,
                                 0.11283791670952438, -0.37612638903183704, 0.12837916709551256);
  return copysign(select(t > V(0.93), tail, detail::mad(q, t, t)), x);
#endif
}
template <class T>
LORRY_INLINE Vec<T> erfc(Vec<T> x) {
  return lanewise<T>([](T v) { return std::erfc(v); }, x);
}
/// x = q pi / 2 + r with |r| <= pi / 4. With t = tan(r / 2), tan(r) = 2 t / (1 - t^2), and for odd q tan(x) = -1 /
/// tan(r). The parts of pi / 2 are subtracted by fma: the first difference is exact.
template <class T>
LORRY_INLINE Vec<T> tan(Vec<T> x) {
  const auto exact = [](T v) { return std::tan(v); };
#if HWY_NATIVE_FMA
  const auto q = detail::nearest(x, 0.63661977236758134308);
  Vec<T> r = x;
  for (const double part : detail::kHalfPi<T>) r = detail::mad_negative(q.number, Vec<T>(part), r);
  const Vec<T> t = detail::tan_near_0(r * Vec<T>(0.5)), two_t = t + t, rest = detail::mad_negative(t, t, Vec<T>(1));
  // The lowest bit of q is that of the shifted number.
  const hn::RebindToUnsigned<typename Vec<T>::Tag> du;
  const auto lowest = hn::And(detail::bits(q.shifted), hn::Set(du, 1));
  const Mask<T> odd(hn::RebindMask(typename Vec<T>::Tag(), hn::Ne(lowest, hn::Zero(du))));
  const Vec<T> fast = select(odd, -rest, two_t) / select(odd, two_t, rest);
  return detail::with_exact_lanes(detail::beyond_reduction(x), select(x == Vec<T>(0), x, fast), exact, x);
#else
  return lanewise<T>(exact, x);
#endif
}

namespace detail {
/// log2(x) of a normal x, and 2^x rounded to 0 or infinity beyond the range of f32. Within 2^-40, which is enough for
/// results in f32; minimax.
LORRY_INLINE Vec<double> short_log2(Vec<double> x) {
  Vec<double> e, f;
  split(x, false, e, f);
  const Vec<double> s = f / (Vec<double>(2) + f);
  const Vec<double> p = polynomial(s * s, 0.282920492070700141, 0.319904352169277385, 0.412209283116879751,
                                   0.577077942082548697, 0.961796694114231694, 2.88539008177784956);
  return mad(p, s, e);
}
LORRY_INLINE Vec<double> short_exp2(Vec<double> x) {
  const Vec<double> inside = clamp(x, -200, 200);
  const auto n = nearest(inside);
  const Vec<double> r = inside - n.number;
  const Vec<double> p =
      polynomial(r, 1.318020677089886e-6, 0.0000153091941990179342, 0.000154038195433400505, 0.00133334547004861611,
                 0.00961812862434502935, 0.0555041093546263913, 0.240226506980778702, 0.693147180548145735);
  return scale_normal(mad(p, r, Vec<double>(1)), n);
}
}  // namespace detail

namespace detail {
/// x^3: x^2 and its rest, exactly, times x.
LORRY_INLINE Vec<float> cube(Vec<float> x) {
#if HWY_NATIVE_FMA
  const Vec<float> square = x * x, rest = fma(x, x, -square), product = square * x;
  return select(finite(product), fma(square, x, rest * x), product);
#else
  return in_double([](Vec<double> a) { return a * a * a; }, x);
#endif
}

/// x^y in f64, where 2^(y log2 |x|) has bits to spare. Lanes in which something is zero, infinite or NaN are those of
/// <cmath>. Where registers are few it is a function of its own, so that it takes none from loops over cubes.
#if HWY_TARGET != HWY_AVX3
[[gnu::noinline]]
#endif
inline Vec<float>
general_pow(Vec<float> x, Vec<float> y) {
  using V = Vec<float>;
  using D = Vec<double>;
  const V magnitude = in_double([](D a, D b) { return short_exp2(b * short_log2(a)); }, abs(x), y);
  V power = magnitude;
  if (any(x < V(0))) {
    const V half = y * V(0.5);
    power = select(round(half) == half, magnitude, -magnitude);
    power = select(x < V(0), select(round(y) == y, power, V(NAN)), magnitude);
  }
  return with_exact_lanes(
      !(finite_and_not_zero(x) & finite(y)), power, [](float a, float b) { return std::pow(a, b); }, x, y);
}
}  // namespace detail

LORRY_INLINE Vec<float> pow(Vec<float> x, Vec<float> y) {
  const Mask<float> is_cube = y == Vec<float>(3);
  const Vec<float> cubed = detail::cube(x);
  if (!any(!is_cube)) return cubed;
  return select(is_cube, cubed, detail::general_pow(x, y));
}
LORRY_INLINE Vec<double> pow(Vec<double> x, Vec<double> y) {
  return lanewise<double>([](double a, double b) { return std::pow(a, b); }, x, y);
}

/// The angle from the quotient of the smaller by the larger coordinate. Lanes in which one is zero, infinite or NaN are
/// those of <cmath>.
LORRY_INLINE Vec<float> atan2(Vec<float> y, Vec<float> x) {
  using V = Vec<float>;
  const V a = abs(x), b = abs(y);
  const Mask<float> steep = b > a, plain = detail::finite_and_not_zero(x) & detail::finite_and_not_zero(y);
  const V angle = detail::atan_of_unit(select(steep, a, b) / select(steep, b, a));
  const V first = select(steep, V(1.57079632679489661923) - angle, angle);
  const V half = select(x < V(0), V(3.14159265358979323846) - first, first);
  return detail::with_exact_lanes(
      !plain, copysign(half, y), [](float v, float u) { return std::atan2(v, u); }, y, x);
}
LORRY_INLINE Vec<double> atan2(Vec<double> y, Vec<double> x) {
  return lanewise<double>([](double a, double b) { return std::atan2(a, b); }, y, x);
}

/// Exact: in f64 a quotient below 2^27 is on the right side of every whole number, and its product with y has 51 bits.
/// Other lanes are those of <cmath>.
LORRY_INLINE Vec<float> fmod(Vec<float> x, Vec<float> y) {
  using V = Vec<float>;
  using D = Vec<double>;
  const Mask<float> plain = (abs(x) < abs(y) * V(0x1p27)) & detail::finite(x) & detail::finite(y);
  const V rest = detail::in_double([](D a, D b) { return a - trunc(a / b) * b; }, x, y);
  return detail::with_exact_lanes(
      !plain, copysign(rest, x), [](float a, float b) { return std::fmod(a, b); }, x, y);
}
LORRY_INLINE Vec<double> fmod(Vec<double> x, Vec<double> y) {
  return lanewise<double>([](double a, double b) { return std::fmod(a, b); }, x, y);
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
