#pragma once

// Stands in for the header of this name where generated kernels run on the host, which has no such instructions.

#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {
namespace {

inline float fast_exp(float x) { return std::exp2(x * 1.44269504088896341f); }
inline float fast_reciprocal(float x) { return 1 / x; }

struct FastMath {
  float value;

  template <class Number>
  explicit FastMath(Number x) : value(static_cast<float>(x)) {}

  friend FastMath operator+(FastMath a, FastMath b) { return FastMath(a.value + b.value); }
  friend FastMath operator-(FastMath a, FastMath b) { return FastMath(a.value - b.value); }
  friend FastMath operator-(FastMath a) { return FastMath(-a.value); }
  friend FastMath operator*(FastMath a, FastMath b) { return FastMath(a.value * b.value); }
  friend FastMath operator/(FastMath a, FastMath b) { return FastMath(a.value / b.value); }
  friend FastMath exp(FastMath x) { return FastMath(fast_exp(x.value)); }
};

}  // namespace
}  // namespace lorry::kernels::cuda
