#include "lorry/ops/product.h"

#include "lorry/base/events.h"
#include "lorry/ops/creation.h"

namespace lorry {

Layout as_row(const Layout& vector) {
  const int64_t n = vector.sizes[0];
  return Layout::strided({1, n}, {n, vector.strides[0]});
}

Layout as_column(const Layout& vector) { return Layout::strided({vector.sizes[0], 1}, {vector.strides[0], 1}); }

Layout transposed(const Layout& matrices) {
  Layout l = matrices;
  std::swap(l.sizes[l.rank - 1], l.sizes[l.rank - 2]);
  std::swap(l.strides[l.rank - 1], l.strides[l.rank - 2]);
  return l;
}

Dims batch_sizes(const Layout& matrices) {
  Dims sizes = matrices.size_list();
  sizes.resize(matrices.rank - 2);
  return sizes;
}

void require_factors(const Tensor& a, const Tensor& b) {
  require_defined(a, "the first operand");
  require_defined(b, "the second operand");
  require_same_device(a, b);
  require<DTypeError>(a.dtype() == b.dtype(),
                      "dtypes differ; got a: {}, b: {}; expected one dtype; convert one with to(dtype)", a, b);
  require<DTypeError>(a.dtype() != kBool, "bool has no products; got {}; convert with to(dtype)", a);
}

namespace {

bool overlap(const Tensor& x, const Tensor& out) {
  return spans_overlap(x.data_ptr(), x.layout(), size_of(x.dtype()), out.data_ptr(), out.layout(),
                       size_of(out.dtype()));
}

/// An operand in a form the kernel reads. `copy` keeps the memory alive when one had to be made.
struct Source {
  Tensor copy;
  kernels::Array array;

  Source(const Tensor& x, const Layout& layout, const Dims& sizes, const char* copy_because)
      : array{x.data_ptr(), x.dtype(), layout} {
    if (copy_because != nullptr) {
      events::emit(events::Kind::hidden_copy, t_operator, copy_because);
      copy = empty(layout.size_list(), x.options());
      copy.copy_(door::make_view(x, layout, x.storage_offset()));
      array = lorry::array(copy);
    }
    array.layout = expand(array.layout, sizes);
  }
};

Source factor(const Tensor& x, const Layout& layout, const Tensor& out, Dims batch) {
  batch.push_back(layout.sizes[layout.rank - 2]);
  batch.push_back(layout.sizes[layout.rank - 1]);
  const char* because = overlap(x, out) ? "an operand overlaps the result" : nullptr;
  if (!kernels::has_unit_stride(layout)) because = "a matrix has no unit stride";
  return Source(x, layout, batch, because);
}

}  // namespace

void Product::run(const Tensor& out, const Layout& out_layout) const {
  if (out.numel() == 0) return;
  const Dims sizes = out_layout.size_list(), batch = batch_sizes(out_layout);
  if (!kernels::has_unit_stride(out_layout)) {
    const Tensor rows = empty(sizes, out.options());
    run(rows, rows.layout());
    door::make_view(out, out_layout, out.storage_offset()).copy_(rows);
    return;
  }
  const Source left = factor(a, a_layout, out, batch), right = factor(b, b_layout, out, batch);
  kernels::MatmulArgs args{.out = {out.data_ptr(), out.dtype(), out_layout},
                           .a = left.array,
                           .b = right.array,
                           .c = {},
                           .alpha = alpha,
                           .beta = beta};
  Tensor keeps;
  if (c != nullptr && c->defined() && beta != 0) {
    const bool is_out = c->data_ptr() == out.data_ptr() && c_layout == out_layout;
    const Source addend(*c, c_layout, sizes, !is_out && overlap(*c, out) ? "an operand overlaps the result" : nullptr);
    keeps = addend.copy;
    args.c = addend.array;
  }
  const kernels::MatmulKernels& products = *backend(out).matmul;
  (a.dtype() == out.dtype() ? products.matmul : products.int8_matmul)(args, current_stream(out.device()));
}

}  // namespace lorry
