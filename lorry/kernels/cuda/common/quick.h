#pragma once

// Arithmetic in f32 for results of 16 bits, which keep 11 digits of 24: exponentials and quotients straight from the
// hardware's approximations, without the steps that a f32 result needs. Infinities, NaN and subnormal quotients come
// out as usual.

#include "lorry/formula/formulas.h"
#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

#ifdef __CUDACC__

/// The relative error grows with |x| (6e-8 |x|), and results below 2^-126 are 0.
__device__ __forceinline__ float quick_exp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896341f));
  return y;
}

/// A value type of formulas (formula/scalar.h), as far as those of kQuick ask for it.
struct Quick {
  float value;

  template <class Number>
  __device__ __forceinline__ explicit Quick(Number x) : value(static_cast<float>(x)) {}

  friend __device__ __forceinline__ Quick operator+(Quick a, Quick b) { return Quick(a.value + b.value); }
  friend __device__ __forceinline__ Quick operator-(Quick a, Quick b) { return Quick(a.value - b.value); }
  friend __device__ __forceinline__ Quick operator-(Quick a) { return Quick(-a.value); }
  friend __device__ __forceinline__ Quick operator*(Quick a, Quick b) { return Quick(a.value * b.value); }
  /// For divisors of at least 1, whose reciprocals are not infinite.
  friend __device__ __forceinline__ Quick operator/(Quick a, Quick b) {
    float reciprocal;
    asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocal) : "f"(b.value));
    return Quick(a.value * reciprocal);
  }
  friend __device__ __forceinline__ Quick exp(Quick x) { return Quick(quick_exp(x.value)); }
};

#endif  // __CUDACC__

/// Formulas whose results of 16 bits are computed in Quick: what they cost is an exponential, and a quotient by 1 +
/// exp(...).
template <class F>
inline constexpr bool kQuick = std::is_same_v<F, formula::Sigmoid> || std::is_same_v<F, formula::GeluTanh> ||
                               std::is_same_v<F, formula::GeluTanhBackward> || std::is_same_v<F, formula::Silu> ||
                               std::is_same_v<F, formula::SiluBackward>;

}  // namespace lorry::kernels::cuda
