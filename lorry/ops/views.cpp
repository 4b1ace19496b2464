#include "lorry/ops/views.h"

#include "lorry/layout/views.h"
#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"

namespace lorry {
namespace {

/// Announces a view whose offset counts from x's first element.
template <class... A>
Tensor view_of(Op op, const Tensor& x, const View& v, const A&... attributes) {
  return door::view(op, x, v.layout, x.storage_offset() + v.offset, attributes...);
}

/// Other sizes over the same elements in the same order: one operator, whatever its public name.
Tensor resized(const Tensor& x, const Layout& layout) {
  return door::view(Op::view, x, layout, x.node()->offset, [&] { return layout.size_list(); });
}

/// view_as for sizes that are known to have x's number of elements; the common case, a contiguous x, is decided by x's
/// own flag.
bool fits(const Tensor& x, const Dims& sizes, Layout& layout) {
  const detail::TensorNode& node = *x.node();
  if (!node.contiguous) return view_as(node.layout, sizes, layout);
  if (node.numel == 0) {  // whose sizes have not been multiplied yet
    layout = Layout::contiguous(sizes);
    return true;
  }
  layout.rank = sizes.size();
  int64_t stride = 1;
  for (int d = layout.rank - 1; d >= 0; --d) {
    layout.sizes[d] = sizes[d];
    layout.strides[d] = stride;
    stride *= sizes[d];
  }
  return true;
}

}  // namespace

Tensor view(const Tensor& x, const Dims& sizes) {
  const Running running("view");
  require_defined(x, "x");
  Layout layout;
  require<ShapeError>(
      fits(x, infer_sizes(sizes, x.node()->numel), layout),
      "the strides do not allow it; got {} with strides {} as {}; use reshape, which copies where it must", x,
      x.strides(), sizes);
  return resized(x, layout);
}

Tensor view_as(const Tensor& x, const Tensor& other) {
  const Running running("view_as");
  require_defined(other, "other");
  return view(x, other.sizes());
}

Tensor reshape(const Tensor& x, const Dims& sizes) {
  const Running running("reshape");
  require_defined(x, "x");
  const Dims inferred = infer_sizes(sizes, x.numel());
  Layout layout;
  if (fits(x, inferred, layout)) return resized(x, layout);
  return reshape_result(x.contiguous(), inferred);
}

Tensor reshape_result(const Tensor& temporary, const Dims& sizes) {
  const Running running("reshape_result");
  Layout layout;
  if (!fits(temporary, sizes, layout)) return reshape_result(temporary.contiguous(), sizes);
  return door::call(
      Op::view, {&temporary},
      [&] { return door::owning(door::make_view(temporary, layout, temporary.storage_offset())); }, sizes);
}

Tensor reshape_as(const Tensor& x, const Tensor& other) {
  const Running running("reshape_as");
  require_defined(other, "other");
  return reshape(x, other.sizes());
}

Tensor permute(const Tensor& x, const Dims& dims) {
  const Running running("permute");
  require_defined(x, "x");
  return view_of(Op::permute, x, views::permute(x.layout(), dims), dims);
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  const Running running("transpose");
  require_defined(x, "x");
  return view_of(Op::transpose, x, views::transpose(x.layout(), dim0, dim1), dim0, dim1);
}

Tensor t(const Tensor& x) {
  const Running running("t");
  require_defined(x, "x");
  require<ShapeError>(x.dim() <= 2, "x is not a matrix; got {}; expected at most 2 dimensions; use mT or transpose", x);
  return x.dim() < 2 ? resized(x, x.layout()) : transpose(x, 0, 1);
}

Tensor mT(const Tensor& x) {
  const Running running("mT");
  require_defined(x, "x");
  require<ShapeError>(x.dim() >= 2, "x has no two last dimensions; got {}", x);
  return transpose(x, -2, -1);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const Running running("select");
  require_defined(x, "x");
  return view_of(Op::select, x, views::select(x.layout(), dim, index), dim, index);
}

namespace {
Tensor sliced(const Tensor& x, int dim, const views::Range& r) {
  return view_of(Op::slice, x, views::slice(x.layout(), dim, r), static_cast<int64_t>(dim), r.start, r.length, r.step);
}
}  // namespace

Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  const Running running("slice");
  require_defined(x, "x");
  require<IndexError>(x.dim() > 0, "a tensor of rank 0 has no dimension to slice; got {}", x);
  const int d = wrap_dim(dim, x.layout().rank);
  return sliced(x, d, views::resolve(start, end, step, x.layout().sizes[d]));
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const Running running("narrow");
  require_defined(x, "x");
  require<IndexError>(x.dim() > 0, "a tensor of rank 0 has no dimension to narrow; got {}", x);
  const int d = wrap_dim(dim, x.layout().rank);
  const int64_t size = x.layout().sizes[d], first = start < 0 ? start + size : start;
  require<IndexError>(first >= 0 && first <= size && length >= 0 && length <= size - first,
                      "range out of bounds; got start {} and length {} for dimension {} of {}", start, length, d, x);
  return sliced(x, d, {first, length, 1});
}

Tensor narrow(const Tensor& x, int64_t dim, const Tensor& start, int64_t length) {
  const Running running("narrow");
  require_defined(start, "start");
  require<ShapeError>(start.dim() == 0, "start has dimensions; got {}; expected a 0-d tensor", start);
  require<DTypeError>(is_integral(start.dtype()), "start is no whole number; got {}; expected an integral dtype",
                      start);
  return narrow(x, dim, start.item<int64_t>(), length);
}

Tensor expand(const Tensor& x, const Dims& sizes) {
  const Running running("expand");
  require_defined(x, "x");
  Dims expanded = sizes;
  const int shift = sizes.size() - x.layout().rank;
  for (int i = 0; i < expanded.size(); ++i) {
    if (expanded[i] == -1 && i >= shift) expanded[i] = x.layout().sizes[i - shift];
    require<ShapeError>(expanded[i] >= 0,
                        "negative size; got {} for {}; expected sizes >= 0, or -1 for an existing dimension", sizes, x);
  }
  const Layout layout = lorry::expand(x.layout(), expanded);
  checked_numel(expanded);
  return door::view(Op::expand, x, layout, x.storage_offset(), expanded);
}

Tensor expand_as(const Tensor& x, const Tensor& other) {
  const Running running("expand_as");
  require_defined(other, "other");
  return expand(x, other.sizes());
}
Tensor broadcast_to(const Tensor& x, const Dims& sizes) {
  const Running running("broadcast_to");
  return expand(x, sizes);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  const Running running("broadcast_tensors");
  Dims common;
  for (const Tensor& x : tensors) {
    require_defined(x, "a tensor");
    common = broadcast(common, x.sizes());
  }
  std::vector<Tensor> out;
  for (const Tensor& x : tensors) out.push_back(expand(x, common));
  return out;
}

Tensor squeeze(const Tensor& x) {
  const Running running("squeeze");
  require_defined(x, "x");
  Dims all;
  for (int64_t d = 0; d < x.dim(); ++d) all.push_back(d);
  return squeeze(x, all);
}
Tensor squeeze(const Tensor& x, int64_t dim) { return squeeze(x, Dims{dim}); }

Tensor squeeze(const Tensor& x, const Dims& dims) {
  const Running running("squeeze");
  require_defined(x, "x");
  return resized(x, views::squeeze(x.layout(), dims));
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const Running running("unsqueeze");
  require_defined(x, "x");
  return resized(x, views::unsqueeze(x.layout(), dim));
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  const Running running("flatten");
  require_defined(x, "x");
  const int rank = x.layout().rank, first = wrap_dim(start_dim, rank), last = wrap_dim(end_dim, rank);
  require<ShapeError>(first <= last, "start_dim comes after end_dim; got {} and {} for {}", start_dim, end_dim, x);
  if (rank == 0) return reshape(x, {1});
  if (first == last) return x;
  Dims sizes;
  int64_t merged = 1;
  for (int d = 0; d < rank; ++d) {
    const int64_t size = x.layout().sizes[d];
    if (d < first || d > last) {
      sizes.push_back(size);
    } else {
      merged *= size;
      if (d == last) sizes.push_back(merged);
    }
  }
  return reshape(x, sizes);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Dims& sizes) {
  const Running running("unflatten");
  require_defined(x, "x");
  require<ShapeError>(x.dim() > 0 && !sizes.empty(), "a dimension and at least one size are needed; got {} and {}", x,
                      sizes);
  const int d = wrap_dim(dim, x.layout().rank);
  const Dims inner = infer_sizes(sizes, x.layout().sizes[d]);
  Dims all;
  for (int i = 0; i < x.layout().rank; ++i) {
    if (i == d) {
      for (const int64_t size : inner) all.push_back(size);
    } else {
      all.push_back(x.layout().sizes[i]);
    }
  }
  return view(x, all);
}

Tensor ravel(const Tensor& x) {
  const Running running("ravel");
  return reshape(x, {-1});
}

Tensor as_strided(const Tensor& x, const Dims& sizes, const Dims& strides, std::optional<int64_t> storage_offset) {
  const Running running("as_strided");
  require_defined(x, "x");
  const int64_t offset = storage_offset.value_or(x.storage_offset());
  const Layout layout = Layout::strided(sizes, strides);
  int64_t last = offset;
  bool overflow = offset < 0;
  for (int d = 0; d < layout.rank; ++d) {
    int64_t reach = 0;
    require<ShapeError>(strides[d] >= 0, "negative stride; got {}; expected every stride >= 0", strides);
    overflow |= __builtin_mul_overflow(std::max<int64_t>(sizes[d] - 1, 0), strides[d], &reach) ||
                __builtin_add_overflow(last, reach, &last);
  }
  const int64_t available = x.storage().bytes() / size_of(x.dtype());
  require<ShapeError>(!overflow && (layout.numel() == 0 || last < available),
                      "reaches outside the storage; got sizes {}, strides {} and offset {} over {} elements of {}",
                      sizes, strides, offset, available, x.dtype());
  return door::view(Op::as_strided, x, layout, offset, sizes, strides, offset, x.storage_offset());
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  const Running running("diagonal");
  require_defined(x, "x");
  return view_of(Op::diagonal, x, views::diagonal(x.layout(), offset, dim1, dim2), offset, dim1, dim2);
}

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  const Running running("unfold");
  require_defined(x, "x");
  return view_of(Op::unfold, x, views::unfold(x.layout(), dim, size, step), dim, size, step);
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  const Running running("movedim");
  require_defined(x, "x");
  return permute(x, views::moved(x.layout().rank, source, destination));
}

}  // namespace lorry
