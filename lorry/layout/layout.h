#pragma once

// Layout: sizes and strides as one trivially copyable value, rank 0 to 8, no heap; kernels take it by value. Strides
// are in elements and never negative. The offset of the first element is not part of a Layout; the tensor holds it.
// Views are functions from (Layout, offset) to (Layout, offset) (views.h), so they can be tested without memory.

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
  /// Row-major without gaps. A dimension of size 1 may have any stride. A layout without elements is contiguous.
  bool is_contiguous() const;
  /// Contiguous after some permutation of its dimensions: every element has its own address, and there are no gaps.
  bool is_dense() const;
  /// Whether two indices may have the same address (a stride of 0, or strides that interleave).
  bool has_internal_overlap() const;
  /// The number of elements from the first address to one past the last; 0 when empty.
  int64_t extent() const;

  Dims size_list() const;
  Dims stride_list() const;
  friend bool operator==(const Layout& a, const Layout& b);
};

/// Whether both have the same rank and sizes. A loop, because std::equal calls memcmp: 3 ns for one dimension.
inline bool same_sizes(const Layout& a, const Layout& b) {
  if (a.rank != b.rank) return false;
  for (int d = 0; d < a.rank; ++d)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

/// A layout and the offset of its first element, in elements: the result of every view function.
struct View {
  Layout layout;
  int64_t offset = 0;
};

/// The product of sizes. Throws ShapeError for a negative size or an overflow.
int64_t checked_numel(const Dims& sizes);

/// The valid values of an index, for messages: "-3 to 2", or "none: the dimension is empty".
struct IndexRange {
  int64_t low, size;  ///< low to size - 1
};

/// Maps -rank..rank-1 to 0..rank-1 (a rank of 0 counts as 1, as in PyTorch). Throws IndexError.
int wrap_dim(int64_t dim, int rank);
/// Maps -rank-1..rank to 0..rank, the positions at which a dimension can be inserted. Throws IndexError.
int wrap_new_dim(int64_t dim, int rank);
/// wrap_dim for each entry; an empty list means every dimension. Throws IndexError, and ShapeError for duplicates.
Dims wrap_dims(const Dims& dims, int rank);

/// The common shape of two shapes, aligned at the last dimension; sizes must be equal or 1. Throws ShapeError.
Dims broadcast(const Dims& a, const Dims& b);
/// The layout that reads a tensor of `layout` as if it had `sizes`: broadcast dimensions have stride 0. Throws
/// ShapeError.
Layout expand(const Layout& layout, const Dims& sizes);

/// Replaces a -1 among `sizes` by the size that gives `numel` elements. Throws ShapeError.
Dims infer_sizes(const Dims& sizes, int64_t numel);
/// Sets `to` to a layout of the same memory with other sizes. Returns false if that would need a copy.
bool view_as(const Layout& from, const Dims& sizes, Layout& to);

/// True when two spans of memory share a byte. `a` and `b` are the addresses of the first elements.
bool spans_overlap(const void* a, const Layout& la, int64_t element_a, const void* b, const Layout& lb,
                   int64_t element_b);

/// Whether elements of two tensors share a byte. Exact for disjoint spans, for dense layouts, for parts of one matrix
/// (rows, columns, blocks), and if one of the two has few elements. The general case is as hard as solving a linear
/// equation in integers, so the result may be `unknown`.
enum class Sharing : uint8_t { no, yes, unknown };
Sharing share_elements(const void* a, const Layout& la, int64_t element_a, const void* b, const Layout& lb,
                       int64_t element_b);

/// "[8, 128, 64]".
std::string to_string(const Dims& dims);

// ---- iteration ------------------------------------------------------------------------------------------------------

inline constexpr int kMaxOperands = 6;

/// A loop over several operands of equal sizes: one list of sizes, and per operand a list of strides in elements. After
/// `collapse`, dimension 0 is the innermost: dimensions are sorted by the strides of operand 0, then merged if the
/// strides of all operands allow it.
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

/// Builds the iteration over operands of equal sizes (expand them first). Dimensions of size 1 are removed; the rank is
/// at least 1. With `reorder` false, dimensions keep their order and only adjacent ones merge: for kernels to which the
/// order matters.
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
