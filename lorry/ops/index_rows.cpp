// index_select, index_add, index_copy, index_fill: one index for each slice along a dimension.

#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/index_support.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

/// A call on slices: x and the source of rank at least 1, the index a vector.
struct IndexedSlices {
  int dim;
  Tensor index;
};

IndexedSlices rows(const Tensor& x, int64_t dim, const Tensor& index) {
  require_defined(x, "x");
  Tensor at = indexing::positions(index);
  require_same_device(x, at);
  require<ShapeError>(at.dim() <= 1, "index is not a vector; got {}; expected at most 1 dimension", index);
  return {wrap_dim(dim, x.layout().rank), at.dim() == 0 ? unsqueeze(at, 0) : at};
}

/// The vector of positions, walked along `dim` of `sizes`.
kernels::Array along(const Tensor& index, int dim, const Dims& sizes) {
  Layout layout = Layout::contiguous(sizes);
  for (int d = 0; d < layout.rank; ++d) layout.strides[d] = d == dim ? index.layout().strides[0] : 0;
  return indexing::restrided(index, layout);
}

/// x's sizes with `count` in `dim`; a number counts as a vector of one.
Dims sizes_with(const Tensor& x, int dim, int64_t count) {
  Dims sizes = x.dim() == 0 ? Dims{1} : x.sizes();
  sizes[dim] = count;
  return sizes;
}

Layout at_least_1d(const Tensor& x) { return x.dim() == 0 ? Layout::contiguous({1}) : x.layout(); }

void put(const Tensor& self, const IndexedSlices& r, const Tensor& source, const Layout& source_layout,
         kernels::Combine combine, kernels::Negative negative = kernels::Negative::wrong) {
  const Layout layout = at_least_1d(self);
  const Dims sizes = sizes_with(self, r.dim, r.index.numel());
  backend(self).indexing->put({.target = indexing::restrided(self, indexing::with_sizes(layout, sizes, r.dim)),
                               .source = indexing::restrided(source, source_layout),
                               .index = along(r.index, r.dim, sizes),
                               .size = layout.sizes[r.dim],
                               .step = layout.strides[r.dim],
                               .combine = combine,
                               .negative = negative},
                              current_stream(self.device()));
}

const Tensor& put_rows(Op op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  const IndexedSlices r = rows(self, dim, index);
  require_defined(source, "source");
  require_same_device(self, source);
  indexing::require_same_dtype(self, source);
  const Dims expected = sizes_with(self, r.dim, r.index.numel()), given = source.dim() == 0 ? Dims{1} : source.sizes();
  require<ShapeError>(given == expected,
                      "source does not fit; got self: {}, index: {}, source: {}; expected source sizes {}", self, index,
                      source, expected);
  return door::call_in_place(
      op, self, {&r.index, &source},
      [&] {
        indexing::check(r.index, 0, at_least_1d(self).sizes[r.dim], r.dim);
        const Tensor from = indexing::apart(source, self);
        put(self, {r.dim, indexing::apart(r.index, self)}, from, at_least_1d(from),
            op == Op::index_add ? kernels::Combine::add : kernels::Combine::assign);
      },
      static_cast<int64_t>(r.dim));
}

}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  const Running running("index_select");
  const IndexedSlices r = rows(x, dim, index);
  return door::call(
      Op::index_select, {&x, &r.index},
      [&] {
        const Layout layout = at_least_1d(x);
        indexing::check(r.index, 0, layout.sizes[r.dim], r.dim);
        const Dims sizes = sizes_with(x, r.dim, r.index.numel());
        require<ShapeError>(x.dim() > 0 || r.index.numel() == 1,
                            "a number has one element to select; got {} with index {}", x, index);
        const Tensor out = empty(x.dim() == 0 ? Dims() : sizes, x.options());
        backend(x).indexing->take({.out = indexing::restrided(out, at_least_1d(out)),
                                   .source = indexing::restrided(x, indexing::with_sizes(layout, sizes, r.dim)),
                                   .index = along(r.index, r.dim, sizes),
                                   .size = layout.sizes[r.dim],
                                   .step = layout.strides[r.dim]},
                                  current_stream(x.device()));
        return out;
      },
      static_cast<int64_t>(r.dim));
}

const Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) const {
  const Running running("index_add");
  const bool is_one = alpha.is_floating() ? alpha.to<double>() == 1 : alpha.to<int64_t>() == 1;
  return put_rows(Op::index_add, *this, dim, index, is_one ? source : source.mul(alpha).to(source.dtype()));
}
const Tensor& Tensor::index_copy_(int64_t dim, const Tensor& index, const Tensor& source) const {
  const Running running("index_copy");
  return put_rows(Op::index_copy, *this, dim, index, source);
}
const Tensor& Tensor::index_fill_(int64_t dim, const Tensor& index, const Operand& value) const {
  const Running running("index_fill");
  const IndexedSlices r = rows(*this, dim, index);
  if (value.tensor() != nullptr) {
    require_defined(*value.tensor(), "value");
    require<ShapeError>(value.tensor()->dim() == 0,
                        "the value has dimensions; got {}; expected a number or a 0-d tensor", *value.tensor());
  }
  return door::call_in_place(
      Op::index_fill, *this, {&r.index, value},
      [&] {
        const int64_t size = at_least_1d(*this).sizes[r.dim];
        indexing::check(r.index, -size, size, r.dim);
        const Tensor number = empty({}, options()).fill_(value);
        put(*this, {r.dim, indexing::apart(r.index, *this)}, number,
            lorry::expand(number.layout(), sizes_with(*this, r.dim, r.index.numel())), kernels::Combine::assign,
            kernels::Negative::wraps);
      },
      static_cast<int64_t>(r.dim));
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  const Running running("index_add");
  require_defined(x, "x");
  return x.clone().index_add_(dim, index, source, alpha);
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  const Running running("index_copy");
  require_defined(x, "x");
  return x.clone().index_copy_(dim, index, source);
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Operand& value) {
  const Running running("index_fill");
  require_defined(x, "x");
  return x.clone().index_fill_(dim, index, value);
}
const Tensor& index_add_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                            const Scalar& alpha) {
  const Running running("index_add");
  return write_out(out, index_add(x, dim, index, source, alpha));
}
const Tensor& index_copy_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                             const Tensor& source) {
  const Running running("index_copy");
  return write_out(out, index_copy(x, dim, index, source));
}
const Tensor& index_fill_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                             const Operand& value) {
  const Running running("index_fill");
  return write_out(out, index_fill(x, dim, index, value));
}
const Tensor& index_select_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index) {
  const Running running("index_select");
  return write_out(out, index_select(x, dim, index));
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const { return lorry::index_select(*this, dim, index); }
Tensor Tensor::index_add(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) const {
  return lorry::index_add(*this, dim, index, source, alpha);
}
Tensor Tensor::index_copy(int64_t dim, const Tensor& index, const Tensor& source) const {
  return lorry::index_copy(*this, dim, index, source);
}
Tensor Tensor::index_fill(int64_t dim, const Tensor& index, const Operand& value) const {
  return lorry::index_fill(*this, dim, index, value);
}

}  // namespace lorry
