#pragma once

#include <cstdint>

#include "lorry/device/stream.h"
#include "lorry/layout/dtype.h"

namespace lorry::kernels::cuda {

/// out = alpha * (a . b), with vectors of `length` elements, `a_step` and `b_step` apart. The dtype is one of has_dot.
struct DotArgs {
  const void *a, *b;
  int64_t a_step, b_step, length;
  double alpha;
  void* out;
  DType dtype;
};
/// Floating types of 16 bits or more.
constexpr bool has_dot(DType t) { return t == kF32 || t == kF64 || t == kBF16 || t == kF16; }
void dot(const DotArgs& args, const Stream& stream);

}  // namespace lorry::kernels::cuda
