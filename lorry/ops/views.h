#pragma once

// Views: other sizes and strides over the same memory. None copies, but for reshape, flatten, ravel and contiguous
// where the strides force it. The gradient of every view that selects elements is `embed`.

#include "lorry/layout/layout.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

Tensor view(const Tensor& x, const Dims& sizes);
/// The same bytes as another dtype. When the element sizes differ the last dimension, which must be contiguous, grows
/// or shrinks.
Tensor view(const Tensor& x, DType dtype);
Tensor view_as(const Tensor& x, const Tensor& other);
/// A view where the strides allow it, else a view of a row-major copy.
Tensor reshape(const Tensor& x, const Dims& sizes);
Tensor reshape_as(const Tensor& x, const Tensor& other);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
/// A matrix transposed; a vector or a number is itself.
Tensor t(const Tensor& x);
/// The last two dimensions exchanged.
Tensor mT(const Tensor& x);
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// Python's start:end:step along a dimension; step > 0.
Tensor slice(const Tensor& x, int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
             int64_t step = 1);
/// length indices from start on; unlike slice, refuses what does not fit.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// The same with a 0-d tensor of whole numbers, which is read.
Tensor narrow(const Tensor& x, int64_t dim, const Tensor& start, int64_t length);
/// Repeats dimensions of size 1 (and new leading ones) with stride 0; -1 keeps a size.
Tensor expand(const Tensor& x, const Dims& sizes);
Tensor expand_as(const Tensor& x, const Tensor& other);
Tensor broadcast_to(const Tensor& x, const Dims& sizes);
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
Tensor squeeze(const Tensor& x);
/// A dimension whose size is not 1 stays; no dimensions given, none goes.
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor squeeze(const Tensor& x, const Dims& dims);
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// Merges start_dim to end_dim, both included.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
Tensor unflatten(const Tensor& x, int64_t dim, const Dims& sizes);
Tensor ravel(const Tensor& x);
/// Any sizes and strides (in elements) within the storage; the offset counts from its start and defaults to x's.
/// Without elements any offset will do.
Tensor as_strided(const Tensor& x, const Dims& sizes, const Dims& strides, std::optional<int64_t> storage_offset = {});
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
/// Parts of `size` along a dimension; the last may be smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
/// At most `chunks` parts of equal size, but for the last.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);

}  // namespace lorry
