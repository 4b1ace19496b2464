#pragma once

// An f32 type for rules whose divisions and roots do not branch. The compiler's own test their arguments and call a
// routine for rare ones; instructions are not moved across that branch, so a thread waits for one operation after the
// other. The operators here are a fast path for common arguments. An argument that is not common sets a flag (`doubt`),
// and flagged elements are computed again in float. A step with 8-bit states gets 4 % faster. Zero divided by a number
// and the root of zero set the flag too: elements that never had a gradient are computed twice.

#include <bit>
#include <cstdint>

#include "lorry/formula/rule.h"

namespace lorry::kernels::cuda {

class BranchFree {
 public:
  struct Mask {
    bool holds, doubt;
    friend __device__ __forceinline__ Mask operator&(Mask a, Mask b) {
      return {a.holds && b.holds, a.doubt || b.doubt};
    }
    friend __device__ __forceinline__ Mask operator|(Mask a, Mask b) {
      return {a.holds || b.holds, a.doubt || b.doubt};
    }
    friend __device__ __forceinline__ Mask operator==(Mask a, Mask b) {
      return {a.holds == b.holds, a.doubt || b.doubt};
    }
    friend __device__ __forceinline__ Mask operator!=(Mask a, Mask b) {
      return {a.holds != b.holds, a.doubt || b.doubt};
    }
    friend __device__ __forceinline__ Mask operator!(Mask a) { return {!a.holds, a.doubt}; }
  };

  BranchFree() = default;
  __device__ __forceinline__ BranchFree(float value) : BranchFree(value, false) {}

  __device__ __forceinline__ float value() const { return value_; }
  __device__ __forceinline__ bool doubt() const { return doubt_; }

  friend __device__ __forceinline__ BranchFree operator+(BranchFree a, BranchFree b) {
    return {__fadd_rn(a.value_, b.value_), a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ BranchFree operator-(BranchFree a, BranchFree b) {
    return {__fsub_rn(a.value_, b.value_), a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ BranchFree operator*(BranchFree a, BranchFree b) {
    return {__fmul_rn(a.value_, b.value_), a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ BranchFree operator-(BranchFree a) { return {-a.value_, a.doubt_}; }
  friend __device__ __forceinline__ BranchFree fma(BranchFree a, BranchFree b, BranchFree c) {
    return {__fmaf_rn(a.value_, b.value_, c.value_), a.doubt_ || b.doubt_ || c.doubt_};
  }
  friend __device__ __forceinline__ BranchFree abs(BranchFree a) { return {fabsf(a.value_), a.doubt_}; }

  /// Common: a divisor in [2^-60, 2^20] and a dividend of magnitude in [2^-100, 2^60]. Then no intermediate result
  /// overflows or loses bits to underflow.
  friend __device__ __forceinline__ BranchFree operator/(BranchFree a, BranchFree b) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b.value_));
    inverse = __fmaf_rn(inverse, __fmaf_rn(-b.value_, inverse, 1), inverse);
    const float quotient = __fmul_rn(a.value_, inverse);
    const float nearest = __fmaf_rn(inverse, __fmaf_rn(-b.value_, quotient, a.value_), quotient);
    const uint32_t size = 2 * std::bit_cast<uint32_t>(a.value_);  // twice the magnitude's bits
    return {nearest, a.doubt_ || b.doubt_ || outside(std::bit_cast<uint32_t>(b.value_), bits(-60), bits(20)) ||
                         outside(size, 2 * bits(-100), 2 * bits(60))};
  }

  /// Common: a number in [2^-100, 2^127].
  friend __device__ __forceinline__ BranchFree sqrt(BranchFree a) {
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(a.value_));
    const float root = __fmul_rn(a.value_, inverse);
    const float nearest = __fmaf_rn(__fmaf_rn(-root, root, a.value_), __fmul_rn(inverse, 0.5f), root);
    return {nearest, a.doubt_ || outside(std::bit_cast<uint32_t>(a.value_), bits(-100), bits(127))};
  }

  friend __device__ __forceinline__ Mask operator<(BranchFree a, BranchFree b) {
    return {a.value_ < b.value_, a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ Mask operator<=(BranchFree a, BranchFree b) {
    return {a.value_ <= b.value_, a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ Mask operator>(BranchFree a, BranchFree b) {
    return {a.value_ > b.value_, a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ Mask operator>=(BranchFree a, BranchFree b) {
    return {a.value_ >= b.value_, a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ Mask operator==(BranchFree a, BranchFree b) {
    return {a.value_ == b.value_, a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ Mask operator!=(BranchFree a, BranchFree b) {
    return {a.value_ != b.value_, a.doubt_ || b.doubt_};
  }
  friend __device__ __forceinline__ BranchFree select(Mask mask, BranchFree a, BranchFree b) {
    return {mask.holds ? a.value_ : b.value_, mask.doubt || a.doubt_ || b.doubt_};
  }

 private:
  __device__ __forceinline__ BranchFree(float value, bool doubt) : value_(value), doubt_(doubt) {}

  /// The bits of 2^exponent.
  static constexpr __device__ __forceinline__ uint32_t bits(int exponent) {
    return static_cast<uint32_t>(127 + exponent) << 23;
  }
  static __device__ __forceinline__ bool outside(uint32_t x, uint32_t least, uint32_t most) {
    return x - least > most - least;
  }

  float value_;
  bool doubt_;
};

/// Steps one element.
template <class Rule, class Hyper>
__device__ __forceinline__ void step_element(float& param, float grad, float* states, const Hyper& hyper) {
  BranchFree moved = param, next[Rule::kStates > 0 ? Rule::kStates : 1];
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k) next[k] = states[k];
  Rule()(moved, BranchFree(grad), next, hyper.template map<BranchFree>([](float x) { return BranchFree(x); }));
  bool doubt = moved.doubt();
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k) doubt = doubt || next[k].doubt();
  if (doubt) return Rule()(param, grad, states, hyper);
  param = moved.value();
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k) states[k] = next[k].value();
}

}  // namespace lorry::kernels::cuda
