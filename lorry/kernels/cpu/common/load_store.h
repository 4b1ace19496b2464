#pragma once

// Loading and storing with conversion. Kernels are written for three compute types (f32 for f16, bf16 and f32; f64; i64
// for bool and integers). Elements of other types, and strided elements, go through a buffer of the compute type in
// short blocks.

#include "lorry/kernels/common/compute.h"
#include "lorry/kernels/common/convert.h"

namespace lorry::kernels::cpu {

/// Reads n elements of `dtype`, `stride` elements apart.
template <class C>
void load(C* to, const void* from, DType dtype, int64_t stride, int64_t n) {
  converter(dtype, dtype_of<C>)(from, stride, to, 1, n);
}

/// Writes n elements as `dtype`, `stride` elements apart.
template <class C>
void store(void* to, DType dtype, int64_t stride, const C* from, int64_t n) {
  converter(dtype_of<C>, dtype)(from, 1, to, stride, n);
}

/// Reads 1 where an element is not zero (a NaN is not zero), else 0. C is float, double or int64_t.
template <class C>
void load_nonzero(C* to, const void* from, DType dtype, int64_t stride, int64_t n);

}  // namespace lorry::kernels::cpu
