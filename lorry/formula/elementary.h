#pragma once

// Exponentials, logarithms, powers, trigonometry: each as good as the value type makes it.

#include "lorry/formula/scalar.h"

namespace lorry::formula {

// clang-format off

struct Exp {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return exp(x); }
};
struct Exp2 {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return exp2(x); }
};
struct Expm1 {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return expm1(x); }
};
struct Log {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return log(x); }
};
struct Log1p {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return log1p(x); }
};
struct Log2 {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return log2(x); }
};
struct Log10 {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return log10(x); }
};
struct Sin {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return sin(x); }
};
struct Cos {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return cos(x); }
};
struct Tan {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return tan(x); }
};
struct Asin {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return asin(x); }
};
struct Acos {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return acos(x); }
};
struct Atan {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return atan(x); }
};
struct Atan2 {
  static constexpr LongIn kLongIn = LongIn::floats;
  static constexpr bool kRoundsNumbers = true;
  template <class V> LORRY_INLINE V operator()(V y, V x) const { return atan2(y, x); }
};
struct Sinh {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return sinh(x); }
};
struct Cosh {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return cosh(x); }
};
struct Tanh {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return tanh(x); }
};
struct Erf {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const { return erf(x); }
};
struct Erfc {
  static constexpr LongIn kLongIn = LongIn::floats;
  template <class V> LORRY_INLINE V operator()(V x) const { return erfc(x); }
};
struct Pow {
  static constexpr LongIn kLongIn = LongIn::all;
  static constexpr bool kRaisesWhole = true;
  static constexpr bool kRoundsNumbers = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return pow(x, y); }
};

// clang-format on

}  // namespace lorry::formula
