#pragma once

// Joining tensors and rearranging their elements. All of these copy, but for meshgrid.

#include <string_view>

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Joins along an existing dimension; the other sizes agree. Types are promoted; vectors of size 0 are ignored, as in
/// PyTorch.
Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0);
/// Joins tensors of equal sizes along a new dimension.
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0);
const Tensor& cat_out(const Tensor& out, std::span<const Tensor> tensors, int64_t dim = 0);
const Tensor& stack_out(const Tensor& out, std::span<const Tensor> tensors, int64_t dim = 0);
/// cat along the second dimension (the first, for vectors), and along the first.
Tensor hstack(std::span<const Tensor> tensors);
Tensor vstack(std::span<const Tensor> tensors);
const Tensor& hstack_out(const Tensor& out, std::span<const Tensor> tensors);
const Tensor& vstack_out(const Tensor& out, std::span<const Tensor> tensors);

Tensor flip(const Tensor& x, const Dims& dims);
/// Moves elements by `shifts` along `dims`, around the end; without dims over the flattened tensor.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});
/// x side by side, repeats[i] times along dimension i; extra leading repeats make new dimensions.
Tensor repeat(const Tensor& x, const Dims& repeats);
/// repeat with missing leading repeats taken as 1.
Tensor tile(const Tensor& x, const Dims& repeats);
/// Every slice along dim `repeats` times in a row; without dim over the flattened tensor.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
/// The same with an i64 vector of counts, one for each slice.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// Coordinate grids: views with the sizes of all vectors, of which the k-th varies along dimension k (indexing "ij"),
/// or with the first two dimensions exchanged ("xy"). The vectors have one dtype.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& vectors, std::string_view indexing = "ij");
/// Neighbouring differences along dim, taken n times, after `prepend` and `append` were joined to x there. n = 0 gives
/// a copy of x alone.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, const Tensor& prepend = {}, const Tensor& append = {});

}  // namespace lorry
