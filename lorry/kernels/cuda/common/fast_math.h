#pragma once

// Fast f32 arithmetic for narrow results, which have at most 11 of f32's 24 digits. Exponentials and quotients are the
// hardware's approximations, without the steps that an exact f32 result needs. Infinities, NaN and subnormal quotients
// are as usual.

#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

#ifdef __CUDACC__

/// 2^x within 2 ulp. Results below 2^-126 are 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The relative error grows with |x| (6e-8 |x|). Results below 2^-126 are 0.
__device__ __forceinline__ float fast_exp(float x) { return fast_exp2(x * 1.44269504088896341f); }

/// 1 / x within 1 ulp, for normal x with a normal reciprocal.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// A value type of formulas (formula/scalar.h) with the operations that formulas with kFastMath use.
struct FastMath {
  float value;

  template <class Number>
  __device__ __forceinline__ explicit FastMath(Number x) : value(static_cast<float>(x)) {}

  friend __device__ __forceinline__ FastMath operator+(FastMath a, FastMath b) { return FastMath(a.value + b.value); }
  friend __device__ __forceinline__ FastMath operator-(FastMath a, FastMath b) { return FastMath(a.value - b.value); }
  friend __device__ __forceinline__ FastMath operator-(FastMath a) { return FastMath(-a.value); }
  friend __device__ __forceinline__ FastMath operator*(FastMath a, FastMath b) { return FastMath(a.value * b.value); }
  /// For divisors of at least 1, whose reciprocals are finite.
  friend __device__ __forceinline__ FastMath operator/(FastMath a, FastMath b) {
    return FastMath(a.value * fast_reciprocal(b.value));
  }
  friend __device__ __forceinline__ FastMath exp(FastMath x) { return FastMath(fast_exp(x.value)); }
};

#endif  // __CUDACC__

}  // namespace lorry::kernels::cuda
