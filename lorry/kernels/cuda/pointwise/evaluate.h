#pragma once

// How kernels evaluate a formula. Kernels built with Lorry and kernels compiled at run time share this function, so
// both give the same bits.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "lorry/formula/scalar.h"
#include "lorry/kernels/cuda/common/fast_math.h"

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
/// narrow: the result will be rounded to a narrow float. Contiguous and strided kernels decide it in the same way, so
/// results do not depend on strides.
template <class Formula, class C, int kArity>
__device__ __forceinline__ C compute(const C (&x)[kArity], bool narrow) {
  return [&]<int... k>(std::integer_sequence<int, k...>) {
    if constexpr (formula::kFastMath<Formula> && std::is_same_v<C, float>)
      if (narrow) return Formula()(FastMath(x[k])...).value;
    if constexpr (formula::kLong<Formula, C>)
      return evaluate_called<Formula, C>(x[k]...);
    else
      return evaluate<Formula, C>(x[k]...);
  }
  (std::make_integer_sequence<int, kArity>());
}

}  // namespace lorry::kernels::cuda
