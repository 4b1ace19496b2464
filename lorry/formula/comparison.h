#pragma once

// Comparisons, tests, logic, bits and choice. Truth values are 1 and 0 of the value type.

#include "lorry/formula/scalar.h"

namespace lorry::formula {

// clang-format off

struct Eq {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return select(x == y, V(1), V(0)); }
};
struct Ne {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return select(x != y, V(1), V(0)); }
};
struct Lt {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return select(x < y, V(1), V(0)); }
};
struct Le {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return select(x <= y, V(1), V(0)); }
};
struct Gt {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return select(x > y, V(1), V(0)); }
};
struct Ge {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return select(x >= y, V(1), V(0)); }
};

struct IsNan {
  template <class V> LORRY_INLINE V operator()(V x) const { return select(x != x, V(1), V(0)); }
};
struct IsInf {
  template <class V> LORRY_INLINE V operator()(V x) const {
    if constexpr (kWhole<V>) return V(0);
    else return select(abs(x) == V(INFINITY), V(1), V(0));
  }
};
struct IsFinite {
  template <class V> LORRY_INLINE V operator()(V x) const {
    if constexpr (kWhole<V>) return V(1);
    else return select(abs(x) < V(INFINITY), V(1), V(0));
  }
};

struct LogicalNot {
  template <class V> LORRY_INLINE V operator()(V x) const { return select(x == V(0), V(1), V(0)); }
};
struct LogicalAnd {
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const auto other = y != V(0);
    return select((x != V(0)) & other, V(1), V(0));
  }
};
struct LogicalOr {
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const auto other = y != V(0);
    return select((x != V(0)) | other, V(1), V(0));
  }
};
struct LogicalXor {
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
      return select((x != V(0)) != (y != V(0)), V(1), V(0)); }
};

/// The complement of whole numbers. Operators send bool to LogicalNot: its complement is not ~1.
struct BitwiseNot {
  template <class V> LORRY_INLINE V operator()(V x) const { return ~x; }
};
struct BitwiseAnd {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x & y; }
};
struct BitwiseOr {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x | y; }
};
struct BitwiseXor {
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x ^ y; }
};
struct LeftShift {
  static constexpr bool kShifts = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x << y; }
};
struct RightShift {
  static constexpr bool kShifts = true;
  template <class V> LORRY_INLINE V operator()(V x, V y) const { return x >> y; }
};

/// A NaN on either side is the result.
struct Maximum {
  static constexpr Bound kBounds = Bound::below;
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const auto nan = x != x;
    return select((x > y) | nan, x, y);
  }
};
struct Minimum {
  static constexpr Bound kBounds = Bound::above;
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const auto nan = x != x;
    return select((x < y) | nan, x, y);
  }
};
/// A NaN on one side loses.
struct Fmax {
  static constexpr Bound kBounds = Bound::below;
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const auto nan = y != y;
    return select((x >= y) | nan, x, y);
  }
};
struct Fmin {
  static constexpr Bound kBounds = Bound::above;
  template <class V> LORRY_INLINE V operator()(V x, V y) const {
    const auto nan = y != y;
    return select((x <= y) | nan, x, y);
  }
};
/// Where low > high the result is high.
struct Clamp {
  static constexpr Bound kBounds = Bound::clamp;
  template <class V> LORRY_INLINE V operator()(V x, V low, V high) const { return Minimum()(Maximum()(x, low), high); }
};
struct Where {
  template <class V> LORRY_INLINE V operator()(V condition, V x, V y) const { return select(condition != V(0), x, y); }
};
struct NanToNum {
  template <class V> LORRY_INLINE V operator()(V x, V nan, V posinf, V neginf) const {
    return select(x != x, nan, select(x == V(INFINITY), posinf, select(x == V(-INFINITY), neginf, x)));
  }
};

// clang-format on

}  // namespace lorry::formula
