#include "lorry/ops/embedding.h"

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"

namespace lorry {
namespace {

/// The indices as the kernels take them: i64, one row of the table each, repeated along the width.
struct IndexArray {
  Tensor held;
  kernels::Array array;

  IndexArray(const Tensor& indices, int64_t width) : held(indices.to(kI64).contiguous()) {
    array = {held.data_ptr(), kI64, Layout::strided({held.numel(), width}, {1, 0})};
  }
};

/// A row-major [..., width] as [count, width].
kernels::Array as_rows(const Tensor& x, int64_t count, int64_t width) {
  return {x.data_ptr(), x.dtype(), Layout::contiguous({count, width})};
}

/// A table as the kernels take it: rows are indexed, columns walked.
kernels::Array as_table(const Tensor& table, int64_t count) {
  return {table.data_ptr(), table.dtype(), Layout::strided({count, table.size(1)}, {0, table.stride(1)})};
}

/// Writes zeros without counting a write, because nobody else has seen the elements.
void clear(const Tensor& x) {
  const double zero = 0;
  backend(x).copy->fill(array(x), &zero, kF64, current_stream(x.device()));
}

}  // namespace

Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx) {
  const Running running("embedding");
  require_defined(indices, "the indices");
  require_defined(weight, "the weight");
  require_same_device(indices, weight);
  require<DTypeError>(indices.dtype() == kI64 || indices.dtype() == kI32, "indices are not i64 or i32; got {}",
                      indices);
  require<ShapeError>(weight.dim() == 2, "the weight is not a matrix; got {}; expected [rows, width]", weight);
  const int64_t rows = weight.size(0), padding = padding_idx.value_or(0);
  require<IndexError>(!padding_idx || (padding >= -rows && padding < rows),
                      "padding_idx is outside the table; got {} for weight: {}; expected {}", padding, weight,
                      IndexRange{-rows, rows});
  const int64_t padding_row = !padding_idx ? -1 : padding < 0 ? padding + rows : padding;
  return door::call(
      Op::embedding, {&weight, &indices},
      [&] {
        Dims sizes = indices.sizes();
        sizes.push_back(weight.size(1));
        Tensor out = empty(sizes, weight.options());
        if (indices.numel() == 0) return out;
        const auto& kernels = *backend(weight).indexing;
        const Stream stream = current_stream(weight.device());
        const IndexArray index_array(indices, weight.size(1));
        const kernels::OutOfRange bad = kernels.check(array(index_array.held), 0, weight.size(0), stream);
        require<IndexError>(bad.position < 0, "index {} is outside the table; got indices: {}, weight: {}; expected {}",
                            bad.value, indices, weight, IndexRange{0, weight.size(0)});
        kernels.take({.out = as_rows(out, indices.numel(), weight.size(1)),
                      .source = as_table(weight, indices.numel()),
                      .index = index_array.array,
                      .size = weight.size(0),
                      .step = weight.stride(0)},
                     stream);
        return out;
      },
      padding_row);
}

Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t rows, int64_t padding_idx) {
  const Running running("embedding_backward");
  return door::call(
      Op::embedding_backward, {&grad, &indices},
      [&] {
        const int64_t width = grad.size(-1);
        if (indices.numel() == 0 || width == 0) return zeros({rows, width}, grad.options());
        const kernels::IndexingKernels& indexing = *backend(grad).indexing;
        const bool rounds_once = indexing.put_rounds_once != nullptr && indexing.put_rounds_once(indices.numel());
        const Tensor wide = (rounds_once || grad.dtype() == kF64 ? grad : grad.to(kF32)).contiguous();
        Tensor table = empty({rows, width}, wide.options());
        clear(table);
        const IndexArray index_array(indices, width);
        indexing.put({.target = as_table(table, indices.numel()),
                      .source = as_rows(wide, indices.numel(), width),
                      .index = index_array.array,
                      .size = rows,
                      .step = width,
                      .combine = kernels::Combine::add,
                      .rounds_once = rounds_once},
                     current_stream(grad.device()));
        if (padding_idx >= 0) clear(table.select(0, padding_idx));
        return table.to(grad.dtype());
      },
      rows, padding_idx);
}

bool has_embedding_backward_onto(DType dtype, Device device, int64_t indices) {
  const auto rounds_once = kernels::backend(device).indexing->put_rounds_once;
  return is_floating(dtype) && size_of(dtype) == 2 && rounds_once != nullptr && rounds_once(indices);
}

Tensor embedding_backward_onto(const Tensor& grad, const Tensor& indices, Tensor onto) {
  const Running running("embedding_backward");
  if (onto.node_ptr()->users() > 1 || onto.storage().users() > 1) onto = onto.clone();
  const int64_t count = indices.numel(), width = grad.size(-1);
  if (count == 0 || width == 0) return onto;
  const Tensor rows = grad.contiguous();
  const IndexArray index_array(indices, width);
  backend(grad).indexing->put({.target = as_table(onto, count),
                               .source = as_rows(rows, count, width),
                               .index = index_array.array,
                               .size = onto.size(0),
                               .step = width,
                               .combine = kernels::Combine::add,
                               .rounds_once = true},
                              current_stream(grad.device()));
  return onto;
}

}  // namespace lorry
