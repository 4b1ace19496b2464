#pragma once

// What the operators that read and write at positions share: checks of indices and the layouts that kernels/indexing.h
// asks for.

#include "lorry/ops/array.h"
#include "lorry/ops/indexing.h"

namespace lorry::indexing {

/// The index as i64. Throws DTypeError unless it is i64 or i32.
Tensor positions(const Tensor& index);

/// Throws IndexError, naming position, value and size, unless low <= index < size for every index. Nothing has been
/// written by then.
void check(const Tensor& index, int64_t low, int64_t size, int64_t dim);

/// check() of the index and take(), in one pass if the device can. `args.index` walks what the caller gave as `index`.
void check_and_take(const kernels::TakeArgs& args, const Tensor& index, int64_t low, int64_t dim);

/// The tensor to read from while `target` is written: a copy when their memory overlaps.
Tensor apart(const Tensor& source, const Tensor& target);

/// An array over x's memory with another layout.
inline kernels::Array restrided(const Tensor& x, const Layout& layout) { return {x.data_ptr(), x.dtype(), layout}; }

/// `layout` with `sizes`, and with stride 0 in dimension `dim`: how the indexed operand and a vector of positions are
/// walked.
Layout with_sizes(const Layout& layout, const Dims& sizes, int without_stride = -1);

inline void require_same_dtype(const Tensor& x, const Tensor& source) {
  require<DTypeError>(x.dtype() == source.dtype(), "dtypes differ; got self: {}, source: {}; expected one dtype", x,
                      source);
}

}  // namespace lorry::indexing
