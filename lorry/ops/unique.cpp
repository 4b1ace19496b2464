// Distinct elements and distinct slices. How many there are is known only on the device, so every form waits for it.

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/indexing.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/joining.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/reduce.h"
#include "lorry/ops/sort.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

Unique unique_elements(const Tensor& x, bool return_inverse, bool return_counts) {
  require<ShapeError>(x.numel() <= UINT32_MAX, "too many elements; got {}; expected fewer than 2^32", x);
  announce_host_read(x, waits::Wait::size);  // for the size of the results
  const auto all = door::call(
      Op::unique, {&x},
      [&] {
        const Options whole{kI64, x.device()};
        std::array<Tensor, 3> out{empty({x.numel()}, x.options())};
        if (return_inverse) out[1] = empty(x.sizes(), whole);
        if (return_counts) out[2] = empty({x.numel()}, whole);
        const auto maybe = [](const Tensor& t) { return t.defined() ? array(t) : kernels::Array{}; };
        const Tensor row = x.contiguous();
        const int64_t found = backend(x).sort->unique(array(out[0]), maybe(out[1]), maybe(out[2]), array(row),
                                                      current_stream(x.device()));
        out[0] = out[0].narrow(0, 0, found).clone();
        if (return_counts) out[2] = out[2].narrow(0, 0, found).clone();
        return out;
      },
      return_inverse, return_counts);
  return {all[0], all[1], all[2]};
}

/// Slices of x along a dimension as the rows of a matrix.
struct Slices {
  int dim;
  int64_t count;
  Tensor rows;

  Slices(const Tensor& x, int64_t dimension) : dim(wrap_dim(dimension, x.layout().rank)) {
    require<IndexError>(x.dim() > 0, "a tensor of rank 0 has no dimension; got {}", x);
    count = x.size(dim);
    require<ShapeError>(x.numel() > 0 || count == 0,
                        "the slices along dimension {} are empty; got {}; expected sizes > 0 in the other dimensions",
                        dim, x);
    const Tensor first = x.detach().movedim(dim, 0);
    rows = first.reshape({count, count == 0 ? 0 : x.numel() / count});
  }
};

/// For each row the number of distinct rows that come before it. Neighbouring columns become one, round by round: a
/// pair of elements is the number of distinct ones that are less than the left, times their count, plus the same of the
/// right. So numbers order as rows do.
Tensor rank_rows(const Tensor& rows) {
  require<ShapeError>(rows.numel() <= INT32_MAX,
                      "too many elements to compare slices; got {}; expected fewer than 2^31", rows);
  Unique found = unique_elements(rows, true, false);
  Tensor rank = found.inverse;
  while (rank.size(1) > 1) {
    const int64_t pairs = rank.size(1) / 2;
    const Tensor left = rank.slice(1, 0, 2 * pairs, 2), right = rank.slice(1, 1, 2 * pairs, 2);
    Tensor joined = left.mul(found.values.numel()).add(right);
    if (rank.size(1) % 2 != 0) {  // the last column goes on with an element that is the same in all rows
      joined = cat({joined, rank.narrow(1, 2 * pairs, 1).mul(found.values.numel())}, 1);
    }
    found = unique_elements(joined, true, false);
    rank = found.inverse;
  }
  return rank.select(1, 0);
}

Unique unique_slices(const Tensor& x, int64_t dimension, bool return_inverse, bool return_counts) {
  const Slices slices(x, dimension);
  const Options whole{kI64, x.device()};
  if (slices.count == 0) {
    const Tensor none = empty({0}, whole);
    return {x.detach().clone(), return_inverse ? none : Tensor(), return_counts ? none.clone() : Tensor()};
  }
  const Unique groups = unique_elements(rank_rows(slices.rows), true, return_counts);
  const Tensor first = zeros(groups.values.sizes(), whole)
                           .scatter_reduce_(0, groups.inverse, arange(slices.count, whole), "amin", false);
  return {index_select(x.detach(), slices.dim, first), return_inverse ? groups.inverse : Tensor(), groups.counts};
}

}  // namespace

Unique unique(const Tensor& x, bool, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  const Running running("unique");
  require_defined(x, "x");
  return dim ? unique_slices(x, *dim, return_inverse, return_counts)
             : unique_elements(x, return_inverse, return_counts);
}

Unique unique_consecutive(const Tensor& x, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  const Running running("unique_consecutive");
  require_defined(x, "x");
  if (!dim) {
    Unique flat = unique_consecutive(x.detach().ravel(), return_inverse, return_counts, 0);
    if (return_inverse) flat.inverse = reshape_result(flat.inverse, x.sizes());
    return flat;
  }
  const Slices slices(x, *dim);
  const Options whole{kI64, x.device()};
  const int64_t n = slices.count, neighbours = std::max<int64_t>(n - 1, 0);
  // A slice begins a run when it differs from the one before it.
  const Tensor begins = ones({n}, {kBool, x.device()});
  begins.narrow(0, n - neighbours, neighbours)
      .copy_(slices.rows.narrow(0, n - neighbours, neighbours).ne(slices.rows.narrow(0, 0, neighbours)).any({1}));
  const Tensor first = nonzero(begins).squeeze(1);
  const Tensor counts = return_counts ? diff(first, 1, 0, {}, full({1}, n, whole)) : Tensor();
  return {index_select(x.detach(), slices.dim, first), return_inverse ? begins.cumsum(0).sub(1) : Tensor(), counts};
}

Unique Tensor::unique(bool sorted, bool return_inverse, bool return_counts, std::optional<int64_t> dim) const {
  return lorry::unique(*this, sorted, return_inverse, return_counts, dim);
}
Unique Tensor::unique_consecutive(bool return_inverse, bool return_counts, std::optional<int64_t> dim) const {
  return lorry::unique_consecutive(*this, return_inverse, return_counts, dim);
}

}  // namespace lorry
