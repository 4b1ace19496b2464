#pragma once

// How kernels evaluate a formula. Kernels built with Lorry and kernels compiled at run time share this function, so
// both give the same bits.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "lorry/formula/scalar.h"
#include "lorry/kernels/cuda/common/fast_math.h"

namespace lorry::formula {
struct FloorDivide;
struct Pow;
struct Softplus;
}  // namespace lorry::formula

namespace lorry::kernels::cuda {

template <class Formula, class C, class... X>
__device__ __forceinline__ C evaluate(X... x) {
  if constexpr (std::is_same_v<C, int64_t>)
    return Formula()(formula::Whole(x)...).value;
  else
    return Formula()(x...);
}
template <class Formula, class C, class... X>
__device__ __noinline__ C evaluate_called(X... x) {
  return evaluate<Formula, C>(x...);
}

// ---- short ways -----------------------------------------------------------------------------------------------------

// Some formulas have a short way for frequent operands. It is inlined, and all others are left to a call.

template <class Formula, class C>
inline constexpr bool kShortWay = std::is_same_v<C, float> &&
                                  (std::is_same_v<Formula, formula::FloorDivide> ||
                                   std::is_same_v<Formula, formula::Pow> || std::is_same_v<Formula, formula::Softplus>);

/// The quotient rounded down, if it is small: to the bit what the formula gives. The division may have rounded up to a
/// whole number; then what that leaves of x has not the sign of y. fma rounds once, which does not change a sign.
__device__ __forceinline__ bool floor_quotient(float x, float y, float& result) {
  const float quotient = x / y;
  result = std::floor(quotient);
  const float rest = std::fma(-result, y, x);
  if ((rest != 0) & ((rest < 0) != (y < 0))) result -= 1;
  return (std::fabs(quotient) < 0x1p22f) & (std::fabs(y) < INFINITY);
}
/// Returns false if these operands have no short way.
template <class Formula, class C, int kArity>
__device__ __forceinline__ bool evaluate_shortly(const C (&x)[kArity], C& result) {
  if constexpr (std::is_same_v<Formula, formula::FloorDivide>) {
    return floor_quotient(x[0], x[1], result);
  } else if constexpr (std::is_same_v<Formula, formula::Pow>) {
    if (x[1] != 3) return false;
    const double base = x[0];  // in f64, the first product is exact and the second has digits to spare
    result = static_cast<C>(base * base * base);
  } else {
    if (x[1] != 1) return false;
    result = evaluate<Formula, C>(x[0], C(1), x[2]);  // compiled without the product and the quotient by 1
  }
  return true;
}

/// narrow: the result will be rounded to a narrow float. Contiguous and strided kernels decide it in the same way, so
/// results do not depend on strides.
template <class Formula, class C, int kArity>
__device__ __forceinline__ C compute(const C (&x)[kArity], bool narrow) {
  return [&]<int... k>(std::integer_sequence<int, k...>) {
    if constexpr (formula::kFastMath<Formula> && std::is_same_v<C, float>)
      if (narrow) return Formula()(FastMath(x[k])...).value;
    if constexpr (kShortWay<Formula, C>) {
      C result;
      return evaluate_shortly<Formula>(x, result) ? result : evaluate_called<Formula, C>(x[k]...);
    } else if constexpr (formula::kLong<Formula, C>) {
      return evaluate_called<Formula, C>(x[k]...);
    } else {
      return evaluate<Formula, C>(x[k]...);
    }
  }
  (std::make_integer_sequence<int, kArity>());
}

}  // namespace lorry::kernels::cuda
