#pragma once

// Exponentials, logarithms, powers, trigonometry: each as good as the value type makes it.

#include "lorry/formula/scalar.h"

namespace lorry::formula {

// clang-format off

struct Exp {
  template <class V> LORRY_INLINE V operator()(V x) const { return exp(x); }
};
struct Exp2 {
  template <class V> LORRY_INLINE V operator()(V x) const { return exp2(x); }
};
struct Expm1 {
  template <class V> LORRY_INLINE V operator()(V x) const { return expm1(x); }
};
struct Log {
  template <class V> LORRY_INLINE V operator()(V x) const { return log(x); }
};
struct Log1p {
  template <class V> LORRY_INLINE V operator()(V x) const { return log1p(x); }
};
struct Log2 {
  template <class V> LORRY_INLINE V operator()(V x) const { return log2(x); }
};
struct Log10 {
  template <class V> LORRY_INLINE V operator()(V x) const { return log10(x); }
};
struct Sin {
  template <class V> LORRY_INLINE V operator()(V x) const { return sin(x); }
};
struct Cos {
  template <class V> LORRY_INLINE V operator()(V x) const { return cos(x); }
};
struct Tan {
  template <class V> LORRY_INLINE V operator()(V x) const { return tan(x); }
};
struct Asin {
  template <class V> LORRY_INLINE V operator()(V x) const { return asin(x); }
};
struct Acos {
  template <class V> LORRY_INLINE V operator()(V x) const { return acos(x); }
};
struct Atan {
  template <class V> LORRY_INLINE V operator()(V x) const { return atan(x); }
};
struct Atan2 {
  template <class V> LORRY_INLINE V operator()(V y, V x) const { return atan2(y, x); }
};
struct Sinh {
  template <class V> LORRY_INLINE V operator()(V x) const { return sinh(x); }
};
struct Cosh {
  template <class V> LORRY_INLINE V operator()(V x) const { return cosh(x); }
};
struct Tanh {
  template <class V> LORRY_INLINE V operator()(V x) const { return tanh(x); }
};
struct Erf {
  template <class V> LORRY_INLINE V operator()(V x) const { return erf(x); }
};
struct Erfc {
  template <class V> LORRY_INLINE V operator()(V x) const { return erfc(x); }
};
struct Pow {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return pow(x, y); }
};

// clang-format on

}  // namespace lorry::formula
