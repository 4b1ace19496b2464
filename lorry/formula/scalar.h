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
// float and double answer with <cmath>; Whole (64 bits) and WholeOf<int32_t> are integers that wrap around.

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

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

/// An integer of type T, int64_t or int32_t: overflow wraps, division by zero gives 0 (operators refuse it before),
/// shifts beyond the width empty the value, and the sign fills from the left. The low bits of results do not depend on
/// the width, so narrower integers and bool are computed in a wider type and cut when they are stored.
template <class T>
struct WholeOf {
  T value;

  WholeOf() = default;
  LORRY_INLINE WholeOf(T v) : value(v) {}

  friend LORRY_INLINE WholeOf operator+(WholeOf a, WholeOf b) { return wrap(bits(a) + bits(b)); }
  friend LORRY_INLINE WholeOf operator-(WholeOf a, WholeOf b) { return wrap(bits(a) - bits(b)); }
  friend LORRY_INLINE WholeOf operator*(WholeOf a, WholeOf b) { return wrap(bits(a) * bits(b)); }
  friend LORRY_INLINE WholeOf operator/(WholeOf a, WholeOf b) {
    if (b.value == -1) return -a;  // the one quotient that does not fit would trap
    return b.value == 0 ? 0 : a.value / b.value;
  }
  friend LORRY_INLINE WholeOf operator%(WholeOf a, WholeOf b) {
    return b.value == 0 || b.value == -1 ? 0 : a.value % b.value;
  }
  friend LORRY_INLINE WholeOf operator-(WholeOf a) { return wrap(-bits(a)); }
  friend LORRY_INLINE WholeOf operator&(WholeOf a, WholeOf b) { return a.value & b.value; }
  friend LORRY_INLINE WholeOf operator|(WholeOf a, WholeOf b) { return a.value | b.value; }
  friend LORRY_INLINE WholeOf operator^(WholeOf a, WholeOf b) { return a.value ^ b.value; }
  friend LORRY_INLINE WholeOf operator~(WholeOf a) { return ~a.value; }
  friend LORRY_INLINE WholeOf operator<<(WholeOf a, WholeOf b) {
    return outside(b) ? WholeOf(0) : wrap(bits(a) << (b.value & kLast));
  }
  friend LORRY_INLINE WholeOf operator>>(WholeOf a, WholeOf b) { return a.value >> (outside(b) ? T{kLast} : b.value); }
  friend LORRY_INLINE bool operator<(WholeOf a, WholeOf b) { return a.value < b.value; }
  friend LORRY_INLINE bool operator<=(WholeOf a, WholeOf b) { return a.value <= b.value; }
  friend LORRY_INLINE bool operator>(WholeOf a, WholeOf b) { return a.value > b.value; }
  friend LORRY_INLINE bool operator>=(WholeOf a, WholeOf b) { return a.value >= b.value; }
  friend LORRY_INLINE bool operator==(WholeOf a, WholeOf b) { return a.value == b.value; }
  friend LORRY_INLINE bool operator!=(WholeOf a, WholeOf b) { return a.value != b.value; }
  friend LORRY_INLINE WholeOf select(bool mask, WholeOf a, WholeOf b) { return mask ? a : b; }
  friend LORRY_INLINE WholeOf abs(WholeOf a) { return a.value < 0 ? -a : a; }
  friend LORRY_INLINE WholeOf floor(WholeOf a) { return a; }
  friend LORRY_INLINE WholeOf ceil(WholeOf a) { return a; }
  friend LORRY_INLINE WholeOf round(WholeOf a) { return a; }
  friend LORRY_INLINE WholeOf trunc(WholeOf a) { return a; }
  friend LORRY_INLINE WholeOf fmod(WholeOf a, WholeOf b) { return a % b; }
  /// By squaring; a negative exponent gives the reciprocal rounded towards zero.
  friend LORRY_INLINE WholeOf pow(WholeOf base, WholeOf exponent) {
    if (exponent.value < 0) return base.value == 1 ? 1 : base.value == -1 ? 1 - 2 * (exponent.value & 1) : 0;
    WholeOf result = 1;
    for (Bits e = bits(exponent); e != 0; e >>= 1, base = base * base)
      if (e & 1) result = result * base;
    return result;
  }

 private:
  static_assert(std::same_as<T, int64_t> || std::same_as<T, int32_t>);
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint64_t), uint64_t, uint32_t>;
  enum { kLast = 8 * sizeof(T) - 1 };  // the sign's bit

  static LORRY_INLINE Bits bits(WholeOf a) { return static_cast<Bits>(a.value); }
  static LORRY_INLINE WholeOf wrap(Bits v) { return static_cast<T>(v); }
  static LORRY_INLINE bool outside(WholeOf shift) { return bits(shift) > kLast; }
};
using Whole = WholeOf<int64_t>;

template <class T>
inline constexpr bool kWhole<WholeOf<T>> = true;

}  // namespace lorry::formula
