#include "lorry/ops/sort.h"

#include <cmath>

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/reduce.h"

namespace lorry {

Tensor contiguous_lines(const Tensor& x, int64_t dim) {
  return (x.dim() < 2 || dim == x.dim() - 1 ? x : x.transpose(dim, -1)).contiguous();
}
Tensor from_lines(const Tensor& x, int64_t dim) {
  return x.dim() < 2 || dim == x.dim() - 1 ? x : door::owning(x.transpose(dim, -1).contiguous());
}

namespace {

/// The dimension along which to sort; positions within a line are counted in 32 bits.
int64_t line_dim(const Tensor& x, int64_t dim) {
  require_defined(x, "x");
  const int64_t wrapped = wrap_dim(dim, static_cast<int>(x.dim()));
  require<ShapeError>(x.dim() == 0 || x.size(wrapped) <= UINT32_MAX,
                      "too many elements in a line; got {}; expected fewer than 2^32", x);
  return wrapped;
}

int64_t length(const Tensor& x, int64_t dim) { return x.dim() == 0 ? 1 : x.size(dim); }

}  // namespace

std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending, bool) {
  const Running running("sort");
  dim = line_dim(x, dim);
  auto [values, indices] = door::call(
      Op::sort, {&x},
      [&] {
        const Tensor from = contiguous_lines(x, dim);
        const Tensor sorted = empty(from.sizes(), from.options()), order = empty(from.sizes(), {kI64, x.device()});
        backend(x).sort->sort(array(sorted), array(order), array(from), descending, current_stream(x.device()));
        return std::array<Tensor, 2>{from_lines(sorted, dim), from_lines(order, dim)};
      },
      dim, descending);
  return {values, indices};
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending, bool stable) {
  const Running running("argsort");
  return std::get<1>(sort(x.defined() ? x.detach() : x, dim, descending, stable));
}

std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool) {
  const Running running("topk");
  dim = line_dim(x, dim);
  require<IndexError>(k >= 0 && k <= length(x, dim), "k out of range; got k {} of {}; expected 0 to {}", k, x,
                      length(x, dim));
  auto [values, indices] = door::call(
      Op::topk, {&x},
      [&] {
        const Tensor from = contiguous_lines(x, dim);
        Dims sizes = from.sizes();
        if (x.dim() > 0) sizes.back() = k;
        const Tensor chosen = empty(sizes, from.options()), order = empty(sizes, {kI64, x.device()});
        if (chosen.numel() > 0)
          backend(x).sort->topk(array(chosen), array(order), array(from), largest, current_stream(x.device()));
        return std::array<Tensor, 2>{from_lines(chosen, dim), from_lines(order, dim)};
      },
      dim, k, largest);
  return {values, indices};
}

std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  const Running running("kthvalue");
  dim = line_dim(x, dim);
  const int64_t n = length(x, dim);
  require<IndexError>(k >= 1 && k <= n, "k out of range; got k {} of {}; expected {}", k, x, IndexRange{1, n + 1});
  auto [values, indices] = topk(x, k, dim, false);
  if (x.dim() == 0) return {values, indices};
  if (keepdim) return {values.narrow(dim, k - 1, 1).clone(), indices.narrow(dim, k - 1, 1).clone()};
  return {values.select(dim, k - 1).clone(), indices.select(dim, k - 1).clone()};
}

std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim) {
  const Running running("median");
  dim = line_dim(x, dim);
  const int64_t n = length(x, dim);
  require<IndexError>(n > 0, "dimension {} is empty; got {}; expected a size > 0", dim, x);
  auto [value, index] = kthvalue(x, (n + 1) / 2, dim, keepdim);
  if (!is_floating(x.dtype())) return {value, index};
  auto [top, where] = max(x, dim, keepdim);  // a NaN, where there is one
  const Tensor poisoned = top.isnan();
  return {top.where(poisoned, value), where.where(poisoned, index)};
}

Tensor median(const Tensor& x) {
  const Running running("median");
  require_defined(x, "x");
  Dims all;
  for (int64_t d = 0; d < x.dim(); ++d) all.push_back(d);
  return door::call(
      Op::median, {&x},
      [&] {
        if (x.numel() == 0 && is_floating(x.dtype())) return full({}, NAN, x.options());
        return std::get<0>(median(x.reshape({-1}), 0));
      },
      all);
}

std::tuple<Tensor, Tensor> sort_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                    bool descending, bool stable) {
  const Running running("sort");
  return write_out(values, indices, sort(x, dim, descending, stable));
}

std::tuple<Tensor, Tensor> topk_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t k,
                                    int64_t dim, bool largest, bool sorted) {
  const Running running("topk");
  return write_out(values, indices, topk(x, k, dim, largest, sorted));
}

std::tuple<Tensor, Tensor> kthvalue_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t k,
                                        int64_t dim, bool keepdim) {
  const Running running("kthvalue");
  return write_out(values, indices, kthvalue(x, k, dim, keepdim));
}

std::tuple<Tensor, Tensor> median_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                      bool keepdim) {
  const Running running("median");
  return write_out(values, indices, median(x, dim, keepdim));
}

// ---- methods --------------------------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> Tensor::sort(int64_t dim, bool descending, bool stable) const {
  return lorry::sort(*this, dim, descending, stable);
}
Tensor Tensor::argsort(int64_t dim, bool descending, bool stable) const {
  return lorry::argsort(*this, dim, descending, stable);
}
std::tuple<Tensor, Tensor> Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted) const {
  return lorry::topk(*this, k, dim, largest, sorted);
}
std::tuple<Tensor, Tensor> Tensor::kthvalue(int64_t k, int64_t dim, bool keepdim) const {
  return lorry::kthvalue(*this, k, dim, keepdim);
}
Tensor Tensor::median() const { return lorry::median(*this); }
std::tuple<Tensor, Tensor> Tensor::median(int64_t dim, bool keepdim) const {
  return lorry::median(*this, dim, keepdim);
}

}  // namespace lorry
