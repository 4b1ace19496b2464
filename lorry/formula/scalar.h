#pragma once

// What a formula may ask of its value type V, and the scalar types that answer.
//
//   V(number)                          a constant
//   + - * / and unary -                for floating types rounded once, never contracted
//   < <= > >= == !=                    a mask; masks know !, & and |
//   select(mask, a, b)                 a where the mask holds, else b; both are evaluated
//   abs sqrt fma floor ceil round trunc copysign      exact or rounded once; round takes ties to even
//   exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh erf erfc pow atan2 fmod
//                                      as good as the value type makes them
//   kWhole<V>                          true for whole numbers: these divide towards zero and have no NaN
//
// float and double answer with <cmath>; Whole is a 64-bit integer whose arithmetic wraps around.

#include <cmath>
#include <concepts>
#include <cstdint>

#include "lorry/base/macros.h"
#include "lorry/formula/traits.h"

namespace lorry::formula {

template <class V>
inline constexpr bool kWhole = false;

template <std::floating_point T>
LORRY_INLINE T select(bool mask, T a, T b) {
  return mask ? a : b;
}

#define LORRY_SCALAR_FUNCTION(name, function) \
  template <std::floating_point T>            \
  LORRY_INLINE T name(T x) {                  \
    return std::function(x);                  \
  }
LORRY_SCALAR_FUNCTION(abs, fabs)
LORRY_SCALAR_FUNCTION(sqrt, sqrt)
LORRY_SCALAR_FUNCTION(floor, floor)
LORRY_SCALAR_FUNCTION(ceil, ceil)
LORRY_SCALAR_FUNCTION(round, nearbyint)
LORRY_SCALAR_FUNCTION(trunc, trunc)
LORRY_SCALAR_FUNCTION(exp, exp)
LORRY_SCALAR_FUNCTION(exp2, exp2)
LORRY_SCALAR_FUNCTION(expm1, expm1)
LORRY_SCALAR_FUNCTION(log, log)
LORRY_SCALAR_FUNCTION(log1p, log1p)
LORRY_SCALAR_FUNCTION(log2, log2)
LORRY_SCALAR_FUNCTION(log10, log10)
LORRY_SCALAR_FUNCTION(sin, sin)
LORRY_SCALAR_FUNCTION(cos, cos)
LORRY_SCALAR_FUNCTION(tan, tan)
LORRY_SCALAR_FUNCTION(asin, asin)
LORRY_SCALAR_FUNCTION(acos, acos)
LORRY_SCALAR_FUNCTION(atan, atan)
LORRY_SCALAR_FUNCTION(sinh, sinh)
LORRY_SCALAR_FUNCTION(cosh, cosh)
LORRY_SCALAR_FUNCTION(tanh, tanh)
LORRY_SCALAR_FUNCTION(erf, erf)
LORRY_SCALAR_FUNCTION(erfc, erfc)
#undef LORRY_SCALAR_FUNCTION

template <std::floating_point T>
LORRY_INLINE T fma(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <std::floating_point T>
LORRY_INLINE T copysign(T magnitude, T sign) {
  return std::copysign(magnitude, sign);
}
template <std::floating_point T>
LORRY_INLINE T pow(T x, T y) {
  return std::pow(x, y);
}
template <std::floating_point T>
LORRY_INLINE T atan2(T y, T x) {
  return std::atan2(y, x);
}
template <std::floating_point T>
LORRY_INLINE T fmod(T x, T y) {
  return std::fmod(x, y);
}

/// A 64-bit integer: overflow wraps, division by zero gives 0 (operators refuse it before), shifts beyond the width
/// empty the value, and the sign fills from the left. Narrower integers and bool are computed in it and cut when they
/// are stored.
struct Whole {
  int64_t value;

  Whole() = default;
  LORRY_INLINE Whole(int64_t v) : value(v) {}

  friend LORRY_INLINE Whole operator+(Whole a, Whole b) { return wrap(bits(a) + bits(b)); }
  friend LORRY_INLINE Whole operator-(Whole a, Whole b) { return wrap(bits(a) - bits(b)); }
  friend LORRY_INLINE Whole operator*(Whole a, Whole b) { return wrap(bits(a) * bits(b)); }
  friend LORRY_INLINE Whole operator/(Whole a, Whole b) {
    if (b.value == -1) return -a;  // the one quotient that does not fit would trap
    return b.value == 0 ? 0 : a.value / b.value;
  }
  friend LORRY_INLINE Whole operator%(Whole a, Whole b) {
    return b.value == 0 || b.value == -1 ? 0 : a.value % b.value;
  }
  friend LORRY_INLINE Whole operator-(Whole a) { return wrap(-bits(a)); }
  friend LORRY_INLINE Whole operator&(Whole a, Whole b) { return a.value & b.value; }
  friend LORRY_INLINE Whole operator|(Whole a, Whole b) { return a.value | b.value; }
  friend LORRY_INLINE Whole operator^(Whole a, Whole b) { return a.value ^ b.value; }
  friend LORRY_INLINE Whole operator~(Whole a) { return ~a.value; }
  friend LORRY_INLINE Whole operator<<(Whole a, Whole b) {
    return outside(b) ? Whole(0) : wrap(bits(a) << (b.value & 63));
  }
  friend LORRY_INLINE Whole operator>>(Whole a, Whole b) { return a.value >> (outside(b) ? 63 : b.value); }
  friend LORRY_INLINE bool operator<(Whole a, Whole b) { return a.value < b.value; }
  friend LORRY_INLINE bool operator<=(Whole a, Whole b) { return a.value <= b.value; }
  friend LORRY_INLINE bool operator>(Whole a, Whole b) { return a.value > b.value; }
  friend LORRY_INLINE bool operator>=(Whole a, Whole b) { return a.value >= b.value; }
  friend LORRY_INLINE bool operator==(Whole a, Whole b) { return a.value == b.value; }
  friend LORRY_INLINE bool operator!=(Whole a, Whole b) { return a.value != b.value; }
  friend LORRY_INLINE Whole select(bool mask, Whole a, Whole b) { return mask ? a : b; }
  friend LORRY_INLINE Whole abs(Whole a) { return a.value < 0 ? -a : a; }
  friend LORRY_INLINE Whole floor(Whole a) { return a; }
  friend LORRY_INLINE Whole ceil(Whole a) { return a; }
  friend LORRY_INLINE Whole round(Whole a) { return a; }
  friend LORRY_INLINE Whole trunc(Whole a) { return a; }
  friend LORRY_INLINE Whole fmod(Whole a, Whole b) { return a % b; }
  /// By squaring; a negative exponent gives the reciprocal rounded towards zero.
  friend LORRY_INLINE Whole pow(Whole base, Whole exponent) {
    if (exponent.value < 0) return base.value == 1 ? 1 : base.value == -1 ? 1 - 2 * (exponent.value & 1) : 0;
    Whole result = 1;
    for (uint64_t e = bits(exponent); e != 0; e >>= 1, base = base * base)
      if (e & 1) result = result * base;
    return result;
  }

 private:
  static LORRY_INLINE uint64_t bits(Whole a) { return static_cast<uint64_t>(a.value); }
  static LORRY_INLINE Whole wrap(uint64_t v) { return static_cast<int64_t>(v); }
  static LORRY_INLINE bool outside(Whole shift) { return bits(shift) > 63; }
};

template <>
inline constexpr bool kWhole<Whole> = true;

}  // namespace lorry::formula
