#pragma once

// Vec<T>: one SIMD register of float or double as the value type of formulas, for sources compiled by lorry_simd(). The
// maths functions are in vec_math.h. Contract of both: see formula/scalar.h.

#include <hwy/highway.h>

#include <cmath>

#include "lorry/formula/scalar.h"

namespace lorry::kernels::cpu::LORRY_SIMD {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Mask {
  using Raw = hn::Mask<hn::ScalableTag<T>>;
  Raw raw;

  LORRY_INLINE explicit Mask(Raw r) : raw(r) {}
  friend LORRY_INLINE Mask operator!(Mask a) { return Mask(hn::Not(a.raw)); }
  friend LORRY_INLINE Mask operator&(Mask a, Mask b) { return Mask(hn::And(a.raw, b.raw)); }
  friend LORRY_INLINE Mask operator|(Mask a, Mask b) { return Mask(hn::Or(a.raw, b.raw)); }
  friend LORRY_INLINE Mask operator!=(Mask a, Mask b) { return Mask(hn::Xor(a.raw, b.raw)); }
  friend LORRY_INLINE bool any(Mask a) { return !hn::AllFalse(hn::ScalableTag<T>(), a.raw); }
};

template <class T>
struct Vec {
  using Tag = hn::ScalableTag<T>;
  using Raw = hn::Vec<Tag>;
  static constexpr int64_t kLanes = HWY_MAX_BYTES / sizeof(T);

  Raw raw;

  Vec() = default;
  LORRY_INLINE explicit Vec(double number) : raw(hn::Set(Tag(), static_cast<T>(number))) {}
  LORRY_INLINE explicit Vec(Raw r) : raw(r) {}
  static LORRY_INLINE Vec load(const T* from) { return Vec(hn::LoadU(Tag(), from)); }
  LORRY_INLINE void store(T* to) const { hn::StoreU(raw, Tag(), to); }

  friend LORRY_INLINE Vec operator+(Vec a, Vec b) { return Vec(hn::Add(a.raw, b.raw)); }
  friend LORRY_INLINE Vec operator-(Vec a, Vec b) { return Vec(hn::Sub(a.raw, b.raw)); }
  friend LORRY_INLINE Vec operator*(Vec a, Vec b) { return Vec(hn::Mul(a.raw, b.raw)); }
  friend LORRY_INLINE Vec operator/(Vec a, Vec b) { return Vec(hn::Div(a.raw, b.raw)); }
  friend LORRY_INLINE Vec operator-(Vec a) { return Vec(hn::Neg(a.raw)); }
  friend LORRY_INLINE Mask<T> operator<(Vec a, Vec b) { return Mask<T>(hn::Lt(a.raw, b.raw)); }
  friend LORRY_INLINE Mask<T> operator<=(Vec a, Vec b) { return Mask<T>(hn::Le(a.raw, b.raw)); }
  friend LORRY_INLINE Mask<T> operator>(Vec a, Vec b) { return Mask<T>(hn::Gt(a.raw, b.raw)); }
  friend LORRY_INLINE Mask<T> operator>=(Vec a, Vec b) { return Mask<T>(hn::Ge(a.raw, b.raw)); }
  friend LORRY_INLINE Mask<T> operator==(Vec a, Vec b) { return Mask<T>(hn::Eq(a.raw, b.raw)); }
  /// True for a NaN, unlike Highway 1.0's Ne on AVX.
  friend LORRY_INLINE Mask<T> operator!=(Vec a, Vec b) { return Mask<T>(hn::Not(hn::Eq(a.raw, b.raw))); }
  friend LORRY_INLINE Vec select(Mask<T> mask, Vec a, Vec b) { return Vec(hn::IfThenElse(mask.raw, a.raw, b.raw)); }

  friend LORRY_INLINE Vec abs(Vec a) { return Vec(hn::Abs(a.raw)); }
  friend LORRY_INLINE Vec sqrt(Vec a) { return Vec(hn::Sqrt(a.raw)); }
  friend LORRY_INLINE Vec floor(Vec a) { return Vec(hn::Floor(a.raw)); }
  friend LORRY_INLINE Vec ceil(Vec a) { return Vec(hn::Ceil(a.raw)); }
  friend LORRY_INLINE Vec round(Vec a) { return Vec(hn::Round(a.raw)); }
  friend LORRY_INLINE Vec trunc(Vec a) { return Vec(hn::Trunc(a.raw)); }
  friend LORRY_INLINE Vec copysign(Vec magnitude, Vec sign) { return Vec(hn::CopySign(magnitude.raw, sign.raw)); }
};

/// Applies a scalar function to each lane: slow, but exact.
template <class T, class F, class... Vs>
LORRY_INLINE Vec<T> lanewise(F function, Vec<T> first, Vs... rest) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  alignas(64) T lanes[1 + sizeof...(Vs)][kLanes];
  const Vec<T> operands[] = {first, rest...};
  for (size_t k = 0; k < 1 + sizeof...(Vs); ++k) operands[k].store(lanes[k]);
  for (int64_t i = 0; i < kLanes; ++i) {
    if constexpr (sizeof...(Vs) == 0) lanes[0][i] = function(lanes[0][i]);
    if constexpr (sizeof...(Vs) == 1) lanes[0][i] = function(lanes[0][i], lanes[1][i]);
    if constexpr (sizeof...(Vs) == 2) lanes[0][i] = function(lanes[0][i], lanes[1][i], lanes[2][i]);
  }
  return Vec<T>::load(lanes[0]);
}

/// a * b + c, rounded once, on every processor.
template <class T>
LORRY_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
#if HWY_NATIVE_FMA
  return Vec<T>(hn::MulAdd(a.raw, b.raw, c.raw));
#else
  return lanewise<T>([](T x, T y, T z) { return std::fma(x, y, z); }, a, b, c);
#endif
}

namespace detail {

/// The smaller and the larger of x and a bound; NaN where x is NaN.
template <class T>
LORRY_INLINE Vec<T> at_most(Vec<T> x, double bound) {
#if defined(__x86_64__)
  return Vec<T>(hn::Min(Vec<T>(bound).raw, x.raw));  // the second operand where either is NaN
#else
  return select(x > Vec<T>(bound), Vec<T>(bound), x);
#endif
}
template <class T>
LORRY_INLINE Vec<T> at_least(Vec<T> x, double bound) {
#if defined(__x86_64__)
  return Vec<T>(hn::Max(Vec<T>(bound).raw, x.raw));
#else
  return select(x < Vec<T>(bound), Vec<T>(bound), x);
#endif
}

}  // namespace detail

}  // namespace lorry::kernels::cpu::LORRY_SIMD
