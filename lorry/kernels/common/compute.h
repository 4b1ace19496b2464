#pragma once

// The types in which kernels compute: f32 for f16, bf16 and f32; f64 for f64; i64 for bool and integers.

#include "lorry/layout/dtype.h"

namespace lorry::kernels {

/// Calls f(Type<C>{}) with the compute type of a dtype.
template <class F>
decltype(auto) visit_compute(DType t, F&& f) {
  if (t == kF64) return f(Type<double>{});
  return is_floating(t) ? f(Type<float>{}) : f(Type<int64_t>{});
}

}  // namespace lorry::kernels
