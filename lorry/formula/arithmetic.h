#pragma once

// Sums, products, quotients and rounding.

#include "lorry/formula/scalar.h"

namespace lorry::formula {

// clang-format off

struct Abs {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return abs(x); }
};
struct Neg {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return -x; }
};
/// -1, 0 or 1; 0 for NaN.
struct Sign {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const {
    return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
  }
};
struct Square {
  template <class V> LORRY_INLINE V operator()(V x) const { return x * x; }
};
struct Reciprocal {
  template <class V> LORRY_INLINE V operator()(V x) const { return V(1) / x; }
};
struct Sqrt {
  template <class V> LORRY_INLINE V operator()(V x) const { return sqrt(x); }
};
struct Rsqrt {
  template <class V> LORRY_INLINE V operator()(V x) const { return V(1) / sqrt(x); }
};
struct Floor {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return floor(x); }
};
struct Ceil {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return ceil(x); }
};
/// Ties go to the even neighbour.
struct Round {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return round(x); }
};
struct Trunc {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return trunc(x); }
};
/// The part after the point, with the sign of x.
struct Frac {
  template <class V> LORRY_INLINE V operator()(V x) const { return x - trunc(x); }
};

struct Add {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x + y; }
};
struct Sub {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x - y; }
};
struct Mul {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x * y; }
};
struct Div {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x / y; }
};
struct AddScaled {
  template <class V> LORRY_INLINE V operator()(V x, V y, V alpha) const { return x + alpha * y; }
};

/// The remainder has the sign of the dividend (C's).
struct Fmod {
  static constexpr LongIn kLongIn = LongIn::all;
  static constexpr bool kDividesWhole = true;
  static constexpr bool kRoundsNumbers = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return fmod(x, y); }
};
/// The remainder has the sign of the divisor (Python's).
struct Remainder {
  static constexpr LongIn kLongIn = LongIn::all;
  static constexpr bool kDividesWhole = true;
  static constexpr bool kRoundsNumbers = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const V rest = fmod(x, y);
    const auto opposite = (rest < V(0)) != (y < V(0));
    return select((rest != V(0)) & opposite, rest + y, rest);
  }
};
/// The quotient rounded towards negative infinity, exact where x / y itself would round up to a whole number (Python's
/// float_divmod).
struct FloorDivide {
  static constexpr LongIn kLongIn = LongIn::all;
  static constexpr bool kDividesWhole = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const V rest = fmod(x, y);
    const auto opposite = (rest < V(0)) != (y < V(0));
    const V below = select((rest != V(0)) & opposite, V(1), V(0));
    if constexpr (kWhole<V>) {
      return x / y - below;
    } else {
      const V quotient = (x - rest) / y - below;
      const V whole = floor(quotient);
      const V nearest = select(quotient - whole > V(0.5), whole + V(1), whole);
      const V signed_zero = copysign(V(0), x / y);
      return select(y == V(0), x / y, select(quotient == V(0), signed_zero, nearest));
    }
  }
};
/// The quotient rounded towards zero.
struct TruncDivide {
  static constexpr LongIn kLongIn = LongIn::i64;
  static constexpr bool kDividesWhole = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return trunc(x / y); }
};

/// x + value * a * b, from the left.
struct Addcmul {
  template <class V> LORRY_INLINE V operator()(V x, V a, V b, V value) const { return x + value * a * b; }
};
/// x + value * a / b, from the left.
struct Addcdiv {
  template <class V> LORRY_INLINE V operator()(V x, V a, V b, V value) const { return x + value * a / b; }
};
/// Measured from the nearer end, so that a weight of 1 gives `end` exactly.
struct Lerp {
  template <class V> LORRY_INLINE V operator()(V start, V end, V weight) const {
    const V span = end - start;
    return select(abs(weight) < V(0.5), start + weight * span, end - span * (V(1) - weight));
  }
};
/// The same in fewer operations, as a running mean has it: start + weight (end - start) whatever the weight.
struct Blend {
  template <class V>
  LORRY_INLINE V operator()(V start, V end, V weight) const {
    return start + weight * (end - start);
  }
};

// clang-format on

}  // namespace lorry::formula
