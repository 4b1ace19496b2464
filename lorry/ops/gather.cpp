// gather, scatter and their kin: one index for each element of the result.

#include <cmath>
#include <limits>

#include "lorry/base/events.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/index_support.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace indexing {

Tensor positions(const Tensor& index) {
  require_defined(index, "index");
  require<DTypeError>(index.dtype() == kI64 || index.dtype() == kI32,
                      "dtype cannot index; got index: {}; expected i64 or i32", index);
  return index.to(kI64);
}

void check(const Tensor& index, int64_t low, int64_t size, int64_t dim) {
  const kernels::OutOfRange bad =
      backend(index).indexing->check(array(index), low, size, current_stream(index.device()));
  if (bad.position < 0) return;
  Dims at = index.sizes();
  int64_t rest = bad.position;
  for (int d = at.size() - 1; d >= 0; --d) {
    const int64_t extent = at[d];
    at[d] = rest % extent;
    rest /= extent;
  }
  raise<IndexError>("index out of range; got {} at {} for dimension {} of size {}; expected {}", bad.value, at, dim,
                    size, IndexRange{low, size});
}

void check_and_take(const kernels::TakeArgs& args, const Tensor& index, int64_t low, int64_t dim) {
  const kernels::IndexingKernels& kernels = *backend(index).indexing;
  const Stream stream = current_stream(index.device());
  if (kernels.take_checked != nullptr && kernels.take_checked(args, low, stream)) return;
  check(index, low, args.size, dim);
  kernels.take(args, stream);
}

Tensor apart(const Tensor& source, const Tensor& target) {
  if (source.numel() == 0 || !spans_overlap(source.data_ptr(), source.layout(), size_of(source.dtype()),
                                            target.data_ptr(), target.layout(), size_of(target.dtype())))
    return source;
  events::emit(events::Kind::hidden_copy, t_operator,
               "the source shares memory with the written tensor and is copied first");
  return source.clone();
}

Layout with_sizes(const Layout& layout, const Dims& sizes, int without_stride) {
  Layout out = layout;
  for (int d = 0; d < out.rank; ++d) out.sizes[d] = sizes[d];
  if (without_stride >= 0) out.strides[without_stride] = 0;
  return out;
}

namespace {

/// A number counts as a vector of one.
Tensor at_least_1d(const Tensor& x) { return x.dim() == 0 ? unsqueeze(x, 0) : x; }
Dims at_least_1d(const Dims& sizes) { return sizes.empty() ? Dims{1} : sizes; }

/// dim of a gather-like call, after its shapes have been checked.
int gather_dim(const Tensor& x, int64_t dim, const Tensor& index) {
  require_defined(x, "x");
  require_defined(index, "index");
  require_same_device(x, index);
  const int d = wrap_dim(dim, x.layout().rank);
  require<ShapeError>(std::max<int64_t>(x.dim(), 1) == std::max<int64_t>(index.dim(), 1) || index.numel() == 0,
                      "ranks differ; got x: {}, index: {}; expected equal ranks", x, index);
  if (index.numel() == 0) return d;
  for (int i = 0; i < std::min(x.layout().rank, index.layout().rank); ++i)
    require<ShapeError>(
        i == d || index.layout().sizes[i] <= x.layout().sizes[i],
        "index is larger than x; got x: {}, index: {}; expected no size above x's except in dimension {}", x, index, d);
  return d;
}

/// What is written: a tensor of the caller's, which an invalid index leaves as it is, or one that nobody else sees.
enum class Target { given, own };

/// self (op)= source at index along dim, all checked but the index.
void put(const Tensor& self_in, int d, const Tensor& index_in, const Tensor& source_in, kernels::Combine combine,
         Target target) {
  if (index_in.numel() == 0) return;
  const Tensor self = at_least_1d(self_in), index = at_least_1d(index_in), source = at_least_1d(source_in);
  const int64_t size = self.layout().sizes[d];
  const Dims sizes = index.sizes();
  const kernels::IndexingKernels& kernels = *backend(self).indexing;
  const Stream stream = current_stream(self.device());
  const kernels::PutArgs args{.target = restrided(self, with_sizes(self.layout(), sizes, d)),
                              .source = restrided(source, with_sizes(source.layout(), sizes)),
                              .index = array(index),
                              .size = size,
                              .step = self.layout().strides[d],
                              .combine = combine};
  if (target == Target::own && kernels.put_checked != nullptr && kernels.put_checked(args, stream)) return;
  check(index, 0, size, d);
  kernels.put(args, stream);
}

/// The dimension and the positions of a call that writes, after everything but the positions themselves has been
/// checked.
struct Scatter {
  int dim;
  Tensor index;
};

Scatter require_scatter(const Tensor& self, int64_t dim, const Tensor& index_in, const Tensor& source) {
  const int d = gather_dim(self, dim, index_in);
  const Tensor index = positions(index_in);
  require_defined(source, "source");
  require_same_device(self, source);
  require_same_dtype(self, source);
  const Dims needed = at_least_1d(index.sizes()), given = at_least_1d(source.sizes());
  bool covers = needed.size() == given.size();
  for (int i = 0; covers && i < needed.size(); ++i) covers = needed[i] <= given[i];
  require<ShapeError>(
      covers || index.numel() == 0,
      "source does not cover index; got index: {}, source: {}; expected every size of index <= source's", index,
      source);
  return {d, index};
}

/// `attributes` follow the dimension in what is recorded.
template <class... A>
const Tensor& scatter_(Op op, const Tensor& self, int64_t dim, const Tensor& index_in, const Tensor& source,
                       kernels::Combine combine, Target target, const A&... attributes) {
  const Scatter s = require_scatter(self, dim, index_in, source);
  return door::call_in_place(
      op, self, {&s.index, &source},
      [&] { put(self, s.dim, apart(s.index, self), apart(source, self), combine, target); },
      static_cast<int64_t>(s.dim), attributes...);
}

/// The value that changes nothing when it is combined.
Scalar identity(kernels::Combine combine, DType dtype) {
  const bool largest = combine == kernels::Combine::minimum;
  if (combine == kernels::Combine::add) return int64_t{0};
  if (combine == kernels::Combine::multiply) return int64_t{1};
  return visit(dtype, [&]<class T>(Type<T>) -> Scalar {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<int64_t>(largest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
    } else {
      return largest ? HUGE_VAL : -HUGE_VAL;
    }
  });
}

/// What the name of a reduction means.
struct ReduceKind {
  kernels::Combine combine;
  bool mean = false;
};

ReduceKind reduce_kind(std::string_view reduce) {
  using kernels::Combine;
  if (reduce == "sum") return {Combine::add};
  if (reduce == "mean") return {Combine::add, true};
  if (reduce == "prod") return {Combine::multiply};
  if (reduce == "amax") return {Combine::maximum};
  if (reduce == "amin") return {Combine::minimum};
  raise<ValueError>("unknown reduction; got '{}'; expected sum, prod, mean, amax or amin", reduce);
}

/// How many numbers make up each mean, at least 1.
Tensor counts(const Tensor& self, const Scatter& s, bool include_self) {
  const Options whole{kI64, self.device()};
  const Tensor each = ones({}, whole).expand(s.index.sizes());
  return (include_self ? ones(self.sizes(), whole) : zeros(self.sizes(), whole))
      .scatter_add_(s.dim, s.index, each)
      .clamp_min_(1);
}

/// gather of what `at` names, all checked but that. What is recorded is `index`, whose positions count from the front.
Tensor take(const Tensor& x, int d, const Tensor& index, const Tensor& at_in, kernels::Negative negative) {
  return door::call(
      Op::gather, {&x, &index},
      [&] {
        const Tensor out = empty(at_in.sizes(), x.options());
        if (out.numel() == 0) return out;
        const Tensor from = at_least_1d(x), at = at_least_1d(at_in), to = at_least_1d(out);
        const int64_t size = from.layout().sizes[d];
        check_and_take({.out = array(to),
                        .source = restrided(from, with_sizes(from.layout(), at.sizes(), d)),
                        .index = array(at),
                        .size = size,
                        .step = from.layout().strides[d],
                        .negative = negative},
                       at, negative == kernels::Negative::wraps ? -size : 0, d);
        return out;
      },
      static_cast<int64_t>(d));
}

/// A number as a source for every index.
Tensor number_like(const Tensor& self, const Scalar& value, const Dims& sizes) {
  return full({}, value, self.options()).expand(sizes);
}

}  // namespace
}  // namespace indexing

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index_in) {
  const Running running("gather");
  const int d = indexing::gather_dim(x, dim, index_in);
  const Tensor index = indexing::positions(index_in);
  return indexing::take(x, d, index, index, kernels::Negative::wrong);
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  const Running running("take_along_dim");
  require_defined(x, "x");
  const Tensor at = indexing::positions(index);
  require_same_device(x, at);
  if (!dim) return take_along_dim(ravel(x), ravel(at), 0);
  require<ShapeError>(x.dim() == at.dim(), "ranks differ; got x: {}, index: {}; expected equal ranks", x, index);
  const int d = wrap_dim(*dim, x.layout().rank);
  Dims ours = x.sizes(), theirs = at.sizes();
  const int64_t size = x.dim() == 0 ? 1 : ours[d], count = x.dim() == 0 ? 1 : theirs[d];
  if (x.dim() > 0) ours[d] = theirs[d] = 1;
  Dims common = broadcast(ours, theirs), from = common, to = common;
  if (x.dim() > 0) {
    from[d] = size;
    to[d] = count;
  }
  const Tensor source = expand(x, from), named = expand(at, to);
  const Tensor recorded = door::heard({&x}) ? expand(at.where(at.ge(0), at.add(size)), to) : named;
  return indexing::take(source, d, recorded, named, kernels::Negative::wraps);
}

const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Operand& source) const {
  const Running running("scatter");
  if (source.tensor() != nullptr)
    return indexing::scatter_(Op::scatter, *this, dim, index, *source.tensor(), kernels::Combine::assign,
                              indexing::Target::given);
  require_defined(*this, "self");
  require_defined(index, "index");
  return scatter_(dim, index, indexing::number_like(*this, source.scalar(), index.sizes()));
}
const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) const {
  const Running running("scatter");
  require<ValueError>(reduce == "add" || reduce == "multiply", "unknown reduction; got '{}'; expected add or multiply",
                      reduce);
  const std::string_view name = reduce == "add" ? "sum" : "prod";
  if (source.tensor() != nullptr) return scatter_reduce_(dim, index, *source.tensor(), name);
  require_defined(*this, "self");
  require_defined(index, "index");
  return scatter_reduce_(dim, index, indexing::number_like(*this, source.scalar(), index.sizes()), name);
}
const Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& source) const {
  const Running running("scatter_add");
  return indexing::scatter_(Op::scatter_add, *this, dim, index, source, kernels::Combine::add, indexing::Target::given);
}

const Tensor& Tensor::scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& source_in,
                                      std::string_view reduce, bool include_self) const {
  const Running running("scatter_reduce");
  const auto [combine, mean] = indexing::reduce_kind(reduce);
  indexing::Scatter s = indexing::require_scatter(*this, dim, index, source_in);
  require<DTypeError>(!mean || dtype() != kBool, "a mean of truth values; got self: {}; expected numbers", *this);
  // There are several writes, and what is read by the later ones may lie under the first.
  const Tensor source = indexing::apart(source_in, *this);
  s.index = indexing::apart(s.index, *this);
  if (!include_self)
    scatter_(s.dim, s.index, indexing::number_like(*this, indexing::identity(combine, dtype()), s.index.sizes()));
  if (combine != kernels::Combine::add)
    return indexing::scatter_(Op::scatter_reduce, *this, s.dim, s.index, source, combine, indexing::Target::given,
                              static_cast<int64_t>(combine));
  scatter_add_(s.dim, s.index, source);
  if (!mean) return *this;
  const Tensor count = indexing::counts(*this, s, include_self);
  return is_floating(dtype()) ? div_(count) : div_(count, "floor");
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source) {
  const Running running("scatter");
  require_defined(x, "x");
  const Tensor out = x.clone();
  if (source.tensor() == nullptr) return out.scatter_(dim, index, source);
  return indexing::scatter_(Op::scatter, out, dim, index, *source.tensor(), kernels::Combine::assign,
                            indexing::Target::own);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  const Running running("scatter_add");
  require_defined(x, "x");
  return indexing::scatter_(Op::scatter_add, x.clone(), dim, index, source, kernels::Combine::add,
                            indexing::Target::own);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) {
  const Running running("scatter");
  require_defined(x, "x");
  return x.clone().scatter_(dim, index, source, reduce);
}
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                      bool include_self) {
  const Running running("scatter_reduce");
  require_defined(x, "x");
  return x.clone().scatter_reduce_(dim, index, source, reduce, include_self);
}
const Tensor& gather_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index) {
  const Running running("gather");
  return write_out(out, gather(x, dim, index));
}
const Tensor& scatter_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index, const Operand& source) {
  const Running running("scatter");
  return write_out(out, scatter(x, dim, index, source));
}
const Tensor& scatter_add_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                              const Tensor& source) {
  const Running running("scatter_add");
  return write_out(out, scatter_add(x, dim, index, source));
}
const Tensor& scatter_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index, const Operand& source,
                          std::string_view reduce) {
  const Running running("scatter");
  return write_out(out, scatter(x, dim, index, source, reduce));
}
const Tensor& scatter_reduce_out(const Tensor& out, const Tensor& x, int64_t dim, const Tensor& index,
                                 const Tensor& source, std::string_view reduce, bool include_self) {
  const Running running("scatter_reduce");
  return write_out(out, scatter_reduce(x, dim, index, source, reduce, include_self));
}
const Tensor& take_along_dim_out(const Tensor& out, const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  const Running running("take_along_dim");
  return write_out(out, take_along_dim(x, index, dim));
}
Tensor Tensor::gather(int64_t dim, const Tensor& index) const { return lorry::gather(*this, dim, index); }
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Operand& source) const {
  return lorry::scatter(*this, dim, index, source);
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const {
  return lorry::scatter_add(*this, dim, index, source);
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) const {
  return lorry::scatter(*this, dim, index, source, reduce);
}
Tensor Tensor::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                              bool include_self) const {
  return lorry::scatter_reduce(*this, dim, index, source, reduce, include_self);
}
Tensor Tensor::take_along_dim(const Tensor& index, std::optional<int64_t> dim) const {
  return lorry::take_along_dim(*this, index, dim);
}

}  // namespace lorry
