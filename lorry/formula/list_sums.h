#pragma once

// What kernels add up over the tensors of a list, once for both backends. V is double, or a vector of them. All sums
// begin at 0 and an element of 0 adds nothing, so that a row of a tensor may be filled up with zeros.
//   term    what an element adds
//   join    two sums
//   Again   what adds up such sums

#include <cstdint>
#include <type_traits>

#include "lorry/formula/scalar.h"

namespace lorry::formula {

struct SumSizes {
  using Again = SumSizes;
  template <class V>
  static LORRY_INLINE V term(V x) {
    return abs(x);
  }
  template <class V>
  static LORRY_INLINE V join(V a, V b) {
    return a + b;
  }
};

struct SumSquares {
  using Again = SumSizes;
  template <class V>
  static LORRY_INLINE V term(V x) {
    return x * x;
  }
  template <class V>
  static LORRY_INLINE V join(V a, V b) {
    return a + b;
  }
};

/// NaN when an element is.
struct LargestSize {
  using Again = LargestSize;
  template <class V>
  static LORRY_INLINE V term(V x) {
    return abs(x);
  }
  template <class V>
  static LORRY_INLINE V join(V a, V b) {
    return select((b > a) | (b != b), b, a);
  }
  /// Of numbers, whose masks know ||.
  static LORRY_INLINE double join(double a, double b) { return b > a || b != b ? b : a; }
};

/// The rows of list.def, and `power`: (sum |x|^p)^(1/p) for any p > 0; pow agrees between devices to its last bits
/// only, and its kernels are written by hand.
enum class NormOrder : uint8_t {
#define LORRY_LIST_SUM(order, Formula) order,
#include "lorry/formula/list.def"
  power
};

namespace detail {
template <NormOrder kOrder>
struct ListSumOf {
  using type = SumSizes;  // of powers
};
#define LORRY_LIST_SUM(order, Formula) \
  template <>                          \
  struct ListSumOf<NormOrder::order> { \
    using type = Formula;              \
  };
#include "lorry/formula/list.def"

template <class Formula>
constexpr NormOrder order_of_sum() {
#define LORRY_LIST_SUM(order, Row) \
  if (std::is_same_v<Formula, Row>) return NormOrder::order;
#include "lorry/formula/list.def"
  return NormOrder::power;
}
}  // namespace detail

/// How elements of a norm are added up, or those of NormOrder::power once they are raised.
template <NormOrder kOrder>
using ListSum = typename detail::ListSumOf<kOrder>::type;

/// How sums of a norm's elements are added up.
template <NormOrder kOrder>
inline constexpr NormOrder kNextOrder = detail::order_of_sum<typename ListSum<kOrder>::Again>();

}  // namespace lorry::formula
