#pragma once

// Views as functions of a Layout: no memory, no tensors. Each returns the layout of the view and the offset of its
// first element from the first element of the original.

#include <optional>

#include "lorry/layout/layout.h"

namespace lorry::views {

View permute(const Layout& from, const Dims& dims);
View transpose(const Layout& from, int64_t dim0, int64_t dim1);
/// Fixes the index of a dimension and removes the dimension. Throws IndexError outside -size to size - 1.
View select(const Layout& from, int64_t dim, int64_t index);

/// `length` indices of a dimension: start, start + step, ...
struct Range {
  int64_t start = 0;
  int64_t length = 0;
  int64_t step = 1;
};
/// Python's rule for start:end:step over `size` elements: negative bounds count from the end, then bounds are clamped.
/// Throws ValueError unless step > 0.
Range resolve(std::optional<int64_t> start, std::optional<int64_t> end, int64_t step, int64_t size);
/// The range is not checked.
View slice(const Layout& from, int dim, const Range& range);

/// Replaces dim1 and dim2 by a new last dimension: their diagonal, `offset` above the main one (below, if negative).
View diagonal(const Layout& from, int64_t offset, int64_t dim1, int64_t dim2);
/// All windows of `size` elements along a dimension, `step` apart. The dimension becomes the index of the window; a new
/// last dimension is the position in it.
View unfold(const Layout& from, int64_t dim, int64_t size, int64_t step);

/// Removes those of `dims` whose size is 1.
Layout squeeze(const Layout& from, const Dims& dims);
/// Inserts a dimension of size 1 before `dim`, which may be -rank - 1 to rank.
Layout unsqueeze(const Layout& from, int64_t dim);

/// Whether two layouts show the same elements in the same order: equal sizes and strides, where a dimension of size 1
/// may have any stride.
bool same_elements(const Layout& a, const Layout& b);

/// The inverse permutation.
Dims inverse(const Dims& permutation);
/// The permutation of `rank` dimensions that moves source[i] to destination[i] and keeps the others in order.
Dims moved(int rank, const Dims& source, const Dims& destination);

}  // namespace lorry::views
