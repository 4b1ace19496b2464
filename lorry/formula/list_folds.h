#pragma once

// How kernels fold the elements of a list's tensors, once for both backends: into a sum, or into the largest one. V is
// double, or a vector of them. All folds begin at 0, and an element of 0 changes nothing, so that a row of a tensor may
// be filled up with zeros.
//   term    what an element contributes
//   join    two partial results
//   Again   the fold whose elements are such partial results

#include <cstdint>
#include <type_traits>

#include "lorry/formula/scalar.h"

namespace lorry::formula {

struct SumAbs {
  using Again = SumAbs;
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
  using Again = SumAbs;
  template <class V>
  static LORRY_INLINE V term(V x) {
    return x * x;
  }
  template <class V>
  static LORRY_INLINE V join(V a, V b) {
    return a + b;
  }
};

/// The largest |x|; NaN if an element is NaN.
struct MaxAbs {
  using Again = MaxAbs;
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
#define LORRY_LIST_FOLD(order, Fold) order,
#include "lorry/formula/list.def"
  power
};

namespace detail {
template <NormOrder kOrder>
struct ListFoldOf {
  using type = SumAbs;  // of NormOrder::power
};
#define LORRY_LIST_FOLD(order, Fold)    \
  template <>                           \
  struct ListFoldOf<NormOrder::order> { \
    using type = Fold;                  \
  };
#include "lorry/formula/list.def"

template <class Formula>
constexpr NormOrder order_of_fold() {
#define LORRY_LIST_FOLD(order, Row) \
  if (std::is_same_v<Formula, Row>) return NormOrder::order;
#include "lorry/formula/list.def"
  return NormOrder::power;
}
}  // namespace detail

/// The fold of a norm's elements; of NormOrder::power, that of their powers.
template <NormOrder kOrder>
using ListFold = typename detail::ListFoldOf<kOrder>::type;

/// The order whose fold joins the partial results of a norm.
template <NormOrder kOrder>
inline constexpr NormOrder kNextOrder = detail::order_of_fold<typename ListFold<kOrder>::Again>();

}  // namespace lorry::formula
