#pragma once

// Layout: sizes and strides as one trivially copyable value, rank 0 to 8, no heap; kernels take it by value. Strides
// count elements and are never negative; the offset belongs to the tensor. Every view is a function from
// (Layout, offset) to (Layout, offset) here, so that views can be tested without memory.

#include <cstdint>
#include <string>

#include "lorry/base/fixed_vector.h"
#include "lorry/base/macros.h"

namespace lorry {

inline constexpr int kMaxRank = 8;

/// Sizes, strides or a set of dimensions.
using Dims = FixedVector<int64_t, kMaxRank>;

struct Layout {
  int32_t rank = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[kMaxRank];

  Layout() = default;
  /// Row-major (C order). Throws ShapeError for a negative size or more than 2^63 elements.
  static Layout contiguous(const Dims& sizes);
  static Layout strided(const Dims& sizes, const Dims& strides);

  LORRY_HOST_DEVICE int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  /// Row-major and dense; sizes of 1 may have any stride, and a tensor without elements is contiguous.
  bool is_contiguous() const;
  /// Every element has its own address and the addresses leave no gap: some permutation of it is contiguous.
  bool is_dense() const;
  /// True unless two indices may name one address (a zero stride, or strides that interleave).
  bool has_internal_overlap() const;
  /// The number of elements from the first to one past the last address; 0 when empty.
  int64_t extent() const;

  Dims size_list() const;
  Dims stride_list() const;
  friend bool operator==(const Layout& a, const Layout& b);
};

/// A layout and the offset of its first element, both in elements: what every view function returns.
struct View {
  Layout layout;
  int64_t offset = 0;
};

/// The product of sizes. Throws ShapeError for a negative size or an overflow.
int64_t checked_numel(const Dims& sizes);

/// Where an index may point, for messages: "-3 to 2", or that there is no such place.
struct IndexRange {
  int64_t low, size;  ///< low to size - 1
};

/// Maps -rank..rank-1 to 0..rank-1 (a rank of 0 counts as 1, as in PyTorch). Throws IndexError.
int wrap_dim(int64_t dim, int rank);
/// Maps -rank-1..rank to 0..rank: where a tensor of `rank` may get one more dimension. Throws IndexError.
int wrap_new_dim(int64_t dim, int rank);
/// wrap_dim over a list, refusing duplicates; an empty list means every dimension.
Dims wrap_dims(const Dims& dims, int rank);

/// Two shapes broadcast by the common rule: aligned at the last dimension, sizes equal or 1. Throws ShapeError.
Dims broadcast(const Dims& a, const Dims& b);
/// The strides that read a tensor of `layout` as if it had `sizes`: 0 where it is broadcast. Throws ShapeError.
Layout expand(const Layout& layout, const Dims& sizes);

/// Resolves a -1 among `sizes` for `numel` elements. Throws ShapeError.
Dims infer_sizes(const Dims& sizes, int64_t numel);
/// The layout that shows the same memory with other sizes, when one exists without copying.
bool view_as(const Layout& from, const Dims& sizes, Layout& to);

/// True when two spans of memory share a byte. `a` and `b` are the addresses of the first elements.
bool spans_overlap(const void* a, const Layout& la, int64_t element_a, const void* b, const Layout& lb,
                   int64_t element_b);

/// Whether elements of two tensors share a byte: exact for spans that lie apart, for dense layouts, for parts of one
/// matrix (rows, columns, blocks), and where one of the two has few elements. In general the question is as hard as
/// finding whole numbers that solve an equation: `unknown` then.
enum class Sharing : uint8_t { no, yes, unknown };
Sharing share_elements(const void* a, const Layout& la, int64_t element_a, const void* b, const Layout& lb,
                       int64_t element_b);

/// "[8, 128, 64]".
std::string to_string(const Dims& dims);

// ---- iteration ------------------------------------------------------------------------------------------------------

inline constexpr int kMaxOperands = 6;

/// Several operands walked together: one list of sizes, a stride list for each operand (in elements). After `collapse`,
/// dimension 0 is the innermost: dimensions are sorted by the strides of operand 0, then merged wherever all operands
/// allow.
struct Iteration {
  int operands = 0;
  int rank = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[kMaxOperands][kMaxRank];

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
};

/// Builds the iteration over operands of equal sizes (expand them first). Dimensions of size 1 vanish; a rank of at
/// least 1 remains. With `reorder` false the dimensions keep their order and only neighbours merge (needed where order
/// matters).
Iteration collapse(const Layout* layouts, int count, bool reorder = true);

std::ostream& operator<<(std::ostream& out, const Dims& d);

}  // namespace lorry

template <>
struct fmt::formatter<lorry::Dims> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const lorry::Dims& d, Context& context) const {
    return fmt::format_to(context.out(), "{}", lorry::to_string(d));
  }
};

template <>
struct fmt::formatter<lorry::IndexRange> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const lorry::IndexRange& p, Context& context) const {
    if (p.low >= p.size) return fmt::format_to(context.out(), "none: the dimension is empty");
    return fmt::format_to(context.out(), "{} to {}", p.low, p.size - 1);
  }
};
