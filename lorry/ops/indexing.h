#pragma once

// Indexing. Whole numbers, slices, None and Ellipsis give views; tensors of indices or truth values give copies;
// index_put_ writes through any mixture of them:
//
//   x.index({Slice(1, 4), None, Ellipsis, 0})      a view
//   x.index({rows, Slice(), columns})               a copy, by PyTorch's rules for mixed indices
//   x.index_put_({x.gt(0)}, 1.0)                    a write
//
// Every index is checked before anything is written. Indices are i64 (i32 is converted); index, index_put and
// index_fill take negative ones, the others, as in PyTorch, do not. Writes to one element through equal indices are
// made in row-major order, so accumulated sums do not depend on the number of threads.

#include <string_view>
#include <variant>

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Python's start:stop:step; what is left out (or None) means from the beginning, to the end. step > 0.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;

  Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, std::optional<int64_t> step = {})
      : start(start), stop(stop), step(step.value_or(1)) {}
};

struct EllipsisType {};
/// As many full slices as are missing.
inline constexpr EllipsisType Ellipsis{};
/// A new dimension of size 1; inside Slice, an open end.
inline constexpr std::nullopt_t None = std::nullopt;

/// One entry of an index list.
class Index {
 public:
  template <std::integral I>
  requires(!std::same_as<I, bool>) Index(I position) : value_(static_cast<int64_t>(position)) {}
  Index(bool keep) : value_(keep) {}
  Index(const Slice& slice) : value_(slice) {}
  Index(std::nullopt_t) : value_(std::nullopt) {}
  Index(EllipsisType) : value_(EllipsisType{}) {}
  Index(const Tensor& tensor) : value_(tensor) {}

  using Value = std::variant<int64_t, bool, Slice, std::nullopt_t, EllipsisType, Tensor>;
  const Value& value() const { return value_; }

 private:
  Value value_;
};

Tensor index(const Tensor& x, std::span<const Index> indices);
Tensor index(const Tensor& x, std::initializer_list<Index> indices);
/// Writes `value`, broadcast, to the selected elements, or adds it. Of equal positions the last one written stays.
const Tensor& index_put_(const Tensor& x, std::span<const Index> indices, const Operand& value,
                         bool accumulate = false);
const Tensor& index_put_(const Tensor& x, std::initializer_list<Index> indices, const Operand& value,
                         bool accumulate = false);
/// The primitive forms: an i64 tensor, or an undefined one for a full slice, for each dimension.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate = false);
const Tensor& index_put_(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                         bool accumulate = false);

/// out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on. index: i64, x's rank, no larger than x but in `dim`.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// The inverse: self[index[i][j][k]][j][k] = source[i][j][k] for dim 0. source: at least index's sizes, or a number.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// The same, added to what x has there or multiplied by it: reduce is "add" or "multiply".
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce);
/// reduce: the "sum", "prod", "mean", "amax" or "amin" of all sources with one position and, with include_self, of what
/// x has there. Other elements stay. Means of whole numbers round down, and extremes keep a NaN. Combined in row-major
/// order of the index. Equal extremes share their gradient evenly. Throws ValueError for another `reduce`, DTypeError
/// for a mean of truth values.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                      bool include_self = true);
/// gather after broadcasting x and index against each other in the other dimensions; without dim both are flattened.
/// Negative indices count from the end.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});

/// Whole slices along dim. index: a vector (or one number) of positions; source: x's sizes with index's length in dim.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// value: a number or a 0-d tensor.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Operand& value);

/// The elements where the boolean mask, broadcast with x, is true: a vector.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// The coordinates of the elements that are not zero: i64 [count, rank], in row-major order.
Tensor nonzero(const Tensor& x);
/// The same with a number of rows that does not depend on the elements: i64 [size, rank]. Rows that are left are filled
/// with fill_value; of more elements the first `size` are listed. Nothing waits for the device, so it runs in device
/// graphs. size: x.numel() is always enough. Throws ValueError for a negative one. torch.nonzero_static.
Tensor nonzero_static(const Tensor& x, int64_t size, int64_t fill_value = -1);
/// The same, and how many elements are not zero: an i64 number on x's device. More than `size`: the list was cut.
std::tuple<Tensor, Tensor> nonzero_static_with_count(const Tensor& x, int64_t size, int64_t fill_value = -1);
/// The same as one vector a dimension.
std::vector<Tensor> where(const Tensor& condition);

const Tensor& gather_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index);
const Tensor& take_along_dim_out(const Tensor& out, const Tensor& x, const Tensor& index,
                                 std::optional<int64_t> dim = {});
const Tensor& index_select_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index);
const Tensor& masked_select_out(const Tensor& out, const Tensor& x, const Tensor& mask);
const Tensor& scatter_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index, const Operand& source);
const Tensor& scatter_add_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                              const Tensor& source);
const Tensor& scatter_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index, const Operand& source,
                          std::string_view reduce);
const Tensor& scatter_reduce_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                                 const Tensor& source, std::string_view reduce, bool include_self = true);
const Tensor& index_add_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                            const Scalar& alpha = 1);
const Tensor& index_copy_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                             const Tensor& source);
const Tensor& index_fill_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                             const Operand& value);
const Tensor& nonzero_out(const Tensor& out, const Tensor& x);
const Tensor& nonzero_static_out(const Tensor& out, const Tensor& x, int64_t size, int64_t fill_value = -1);

}  // namespace lorry
