#pragma once

// The formulas on Vec<T>, which is all that most of them need. A few are written anew for a register, where it has
// instructions that the common text cannot ask for.

#include "lorry/formula/formulas.h"
#include "lorry/kernels/cpu/common/vec_math.h"
#include "lorry/kernels/cpu/common/vec_tables.h"

#if HWY_TARGET == HWY_AVX3

namespace lorry::formula {

/// The unit of the processor that divides takes the root too, and would be busy for twice as long. From a reciprocal of
/// 14 bits, two steps of Newton's method give the nearest float (Markstein 1990): the error of the first one, 2^-28, is
/// that of its rounding, so that the second one starts from an exact rest. That is NaN where the root is 0, infinite or
/// NaN, and 2^-24 where all digits of the root are ones, which is where the theorem fails.
template <>
LORRY_INLINE kernels::cpu::LORRY_SIMD::Vec<float> Rsqrt::operator()(kernels::cpu::LORRY_SIMD::Vec<float> x) const {
  using V = kernels::cpu::LORRY_SIMD::Vec<float>;
  const V root = sqrt(x), first(V::Raw{_mm512_rcp14_ps(root.raw.raw)});
  const V second = fma(first, fma(-root, first, V(1)), first), rest = fma(-root, second, V(1));
  if (any(!(rest < V(0x1p-24)))) [[unlikely]]
    return V(1) / root;
  return fma(second, rest, second);
}

template <>
LORRY_INLINE kernels::cpu::LORRY_SIMD::Vec<float> Gelu::operator()(kernels::cpu::LORRY_SIMD::Vec<float> x) const {
  return x * normal_cdf(x);
}

template <>
LORRY_INLINE kernels::cpu::LORRY_SIMD::Vec<float> GeluBackward::operator()(
    kernels::cpu::LORRY_SIMD::Vec<float> grad, kernels::cpu::LORRY_SIMD::Vec<float> x) const {
  using V = kernels::cpu::LORRY_SIMD::Vec<float>;
  const V density = V(0.39894228040143267794) * exp(V(-0.5) * x * x);
  return grad * (normal_cdf(x) + x * density);
}

}  // namespace lorry::formula

#endif
