#pragma once

// Views as functions of a Layout: no memory, no tensors. Each returns the layout of the view and the offset of its
// first element from the first element of the original.

#include <optional>

#include "lorry/layout/layout.h"

namespace lorry::views {

View permute(const Layout& from, const Dims& dims);
View transpose(const Layout& from, int64_t dim0, int64_t dim1);
/// One index of a dimension, which disappears. Throws IndexError outside -size to size - 1.
View select(const Layout& from, int64_t dim, int64_t index);

/// The indices start, start + step, ... below end of a dimension.
struct Range {
  int64_t start = 0;
  int64_t length = 0;
  int64_t step = 1;
};
/// Python's rule for start:end:step over `size` elements: negative bounds count from the end and all are clamped.
/// Throws ValueError unless step > 0.
Range resolve(std::optional<int64_t> start, std::optional<int64_t> end, int64_t step, int64_t size);
/// Trusts the range.
View slice(const Layout& from, int dim, const Range& range);

/// dim1 and dim2 go, and their diagonal `offset` above (or, negative, below) the main one comes last.
View diagonal(const Layout& from, int64_t offset, int64_t dim1, int64_t dim2);
/// All windows of `size` along a dimension, `step` apart: the dimension counts windows and a new last one runs inside
/// them.
View unfold(const Layout& from, int64_t dim, int64_t size, int64_t step);

/// Without the dimensions of size 1 among `dims`.
Layout squeeze(const Layout& from, const Dims& dims);
/// With a dimension of size 1 before `dim`, which may be -rank - 1 to rank.
Layout unsqueeze(const Layout& from, int64_t dim);

/// The permutation that undoes one.
Dims inverse(const Dims& permutation);
/// The permutation of `rank` dimensions that moves source[i] to destination[i] and keeps the others in order.
Dims moved(int rank, const Dims& source, const Dims& destination);

}  // namespace lorry::views
