#pragma once

// The product of a row and a column, which is a reduction.

#include "lorry/formula/fold.h"
#include "lorry/layout/dtype_enum.h"

namespace lorry::kernels::cpu {

/// f64 for floats.
template <class S>
using DotTotal = formula::Total<Accumulate<S>>;

/// The sum of a[i * a_stride] * b[i * b_stride] for i < n; whole numbers wrap. Chunks of a fixed number of elements are
/// summed in parallel and then added in order, so the bits depend neither on the number of threads nor on the strides.
template <class S>
DotTotal<S> dot(const S* a, int64_t a_stride, const S* b, int64_t b_stride, int64_t n);

}  // namespace lorry::kernels::cpu
