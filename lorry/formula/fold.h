#pragma once

// Reductions: what happens to an element before it is folded, how two values become one, what happens to a total; and
// the table of those that are a fold and nothing else, as values.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lorry/base/macros.h"

namespace lorry::formula {

enum class Fold : uint8_t { sum, prod, max, min };
/// What happens to an element before it is folded.
enum class Map : uint8_t {
  none,
  abs,
  square,
  power,    ///< |x| to the power of the parameter
  nonzero,  ///< 0 or 1
  count
};
/// What happens to a total: divided by the parameter, its square root, or its root of order `parameter`.
enum class Finish : uint8_t { none, divide, sqrt, root };

/// The type of running totals over runs of a compute type: f64 for f32, so that long sums stay accurate.
template <class C>
using Total = std::conditional_t<std::is_same_v<C, float>, double, C>;

template <class T>
constexpr T fold_identity(Fold fold) {
  using Limits = std::numeric_limits<T>;
  switch (fold) {
    case Fold::sum:
      return T(0);
    case Fold::prod:
      return T(1);
    case Fold::max:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case Fold::min:
      break;
  }
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

/// Two values become one. Whole numbers wrap around; a NaN, once met, stays.
template <Fold kFold, class T>
LORRY_INLINE T fold_one(T a, T b) {
  if constexpr (kFold == Fold::max) return b > a || b != b ? b : a;
  if constexpr (kFold == Fold::min) return b < a || b != b ? b : a;
  using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  if constexpr (kFold == Fold::sum) return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  if constexpr (kFold == Fold::prod) return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
}

template <class T>
LORRY_INLINE T fold_one(Fold fold, T a, T b) {
  switch (fold) {
    case Fold::sum:
      return fold_one<Fold::sum>(a, b);
    case Fold::prod:
      return fold_one<Fold::prod>(a, b);
    case Fold::max:
      return fold_one<Fold::max>(a, b);
    case Fold::min:
      break;
  }
  return fold_one<Fold::min>(a, b);
}

/// An element mapped, but for `power`: its function is long, and kernels call it apart.
template <class T>
LORRY_INLINE T mapped(Map map, T x) {
  if (map == Map::abs) return x < 0 ? fold_one<Fold::prod>(x, T(-1)) : x;
  if (map == Map::square) return fold_one<Fold::prod>(x, x);
  return map == Map::nonzero ? T(x != 0) : x;
}

/// A total of floating elements, finished.
LORRY_INLINE double finished(Finish finish, double total, double parameter) {
  if (finish == Finish::divide) total /= parameter;
  if (finish == Finish::sqrt) total = std::sqrt(total);
  if (finish == Finish::root) total = std::pow(total, 1 / parameter);
  return total;
}

/// The type of a reduction's result, as reduce.def names it.
enum class FoldResult : uint8_t { wide, real, element, truth };

#ifndef __CUDACC_RTC__  // the table is for the host
struct FoldRow {
  const char* name;
  Fold fold;
  Map map;
  Finish finish;
  FoldResult result;
};

inline constexpr FoldRow kFoldRows[] = {
#define LORRY_REDUCTION(name, fold, map, finish, result) \
  {#name, Fold::fold, Map::map, Finish::finish, FoldResult::result},
#include "lorry/formula/reduce.def"
};
inline constexpr int kFoldRowCount = sizeof(kFoldRows) / sizeof(kFoldRows[0]);
#endif

}  // namespace lorry::formula
