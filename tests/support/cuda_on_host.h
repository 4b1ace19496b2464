#pragma once

// Enough of CUDA for a generated kernel without barriers to be compiled by the host's compiler and run thread by thread.
// The source of such a test includes this before anything else.

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)

namespace {
struct {
  int x;
} threadIdx, blockIdx;
}  // namespace

namespace lorry::kernels::cuda {
/// Tests on the host have no narrow results of formulas with fast maths.
struct FastMath {
  float value;
  explicit FastMath(float x) : value(x) {}
  explicit FastMath(double x) : value(static_cast<float>(x)) {}
  friend FastMath operator+(FastMath a, FastMath b) { return FastMath(a.value + b.value); }
  friend FastMath operator-(FastMath a, FastMath b) { return FastMath(a.value - b.value); }
  friend FastMath operator-(FastMath a) { return FastMath(-a.value); }
  friend FastMath operator*(FastMath a, FastMath b) { return FastMath(a.value * b.value); }
  friend FastMath operator/(FastMath a, FastMath b) { return FastMath(a.value / b.value); }
  friend FastMath exp(FastMath x) { return FastMath(__builtin_expf(x.value)); }
};
}  // namespace lorry::kernels::cuda
