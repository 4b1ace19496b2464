#include "lorry/ops/reduce.h"

#include <cmath>

#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/reduced.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

using formula::FoldResult;
using kernels::Finish;
using kernels::Fold;
using kernels::Map;

struct FoldKind {
  Fold fold;
  Map map = Map::none;
  Finish finish = Finish::none;
  double parameter = 0;
};

Tensor fold(const Tensor& x, const Reduced& r, DType dtype, const FoldKind& kind) {
  Tensor out = r.result(x, dtype);
  backend(x).reduce->fold({r.array(out), array(x), kind.fold, kind.map, kind.finish, kind.parameter},
                          current_stream(x.device()));
  return out;
}

/// x in the type in which its sum or product is taken.
Tensor summand(const Tensor& x, std::optional<DType> dtype) {
  require_defined(x, "x");
  return x.to(dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kI64));
}

void require_floating(const Tensor& x) {
  require_defined(x, "x");
  require<DTypeError>(is_floating(x.dtype()),
                      "the input is not floating; got {}; expected one of {}; convert it with to(dtype)", x,
                      kFloatingNames);
}

Dims one(std::optional<int64_t> dim) { return dim ? Dims{*dim} : Dims{}; }

/// x as a row of formula/reduce.def takes it.
template <FoldResult kResult>
Tensor operand(const Tensor& x, std::optional<DType> dtype) {
  if constexpr (kResult == FoldResult::wide) return summand(x, dtype);
  require_defined(x, "x");
  if constexpr (kResult == FoldResult::real) {
    const Tensor converted = dtype ? x.to(*dtype) : x;
    require_floating(converted);
    return converted;
  }
  return x;
}

template <FoldResult kResult>
Tensor reduce(Op op, const Tensor& input, const Dims& dims, bool keepdim, std::optional<DType> dtype, FoldKind kind) {
  const Running running(name(op));
  const Tensor x = operand<kResult>(input, dtype);
  const Reduced r(x, dims, keepdim);
  if constexpr (kResult == FoldResult::element) r.require_elements(x);
  if (kind.finish == Finish::divide) kind.parameter = static_cast<double>(r.count(x));
  constexpr bool kTruth = kResult == FoldResult::truth;
  const Tensor out = door::call(
      op, {&x}, [&] { return fold(x, r, kTruth ? kBool : x.dtype(), kind); }, r.dims, keepdim);
  return kTruth && x.dtype() == kU8 ? out.to(kU8) : out;
}

std::array<Tensor, 2> extreme_along(Op op, const Tensor& x, int64_t dim, bool keepdim, bool largest) {
  require_defined(x, "x");
  const Reduced r(x, {dim}, keepdim);
  r.require_elements(x);
  return door::call(
      op, {&x},
      [&] {
        std::array<Tensor, 2> out{r.result(x, x.dtype()), r.result(x, kI64)};
        backend(x).reduce->extremum({r.array(out[0]), r.array(out[1]), array(x), largest}, current_stream(x.device()));
        return out;
      },
      static_cast<int64_t>(wrap_dim(dim, static_cast<int>(x.dim()))), keepdim);
}

Tensor position(Op op, const Tensor& x, std::optional<int64_t> dim, bool keepdim, bool largest) {
  require_defined(x, "x");
  const Reduced r(x, one(dim), keepdim);
  r.require_elements(x);
  return door::call(
      op, {&x},
      [&] {
        Tensor out = r.result(x, kI64);
        backend(x).reduce->extremum({{}, r.array(out), array(x), largest}, current_stream(x.device()));
        return out;
      },
      r.dims, keepdim);
}

Tensor moment(Op op, const Tensor& x, const Dims& dims, double correction, bool keepdim, bool root) {
  require_floating(x);
  const Reduced r(x, dims, keepdim);
  return door::call(
      op, {&x},
      [&] {
        Tensor out = r.result(x, x.dtype());
        backend(x).reduce->moments({{}, r.array(out), array(x), correction, root}, current_stream(x.device()));
        return out;
      },
      r.dims, correction, keepdim);
}

Tensor scan(Op op, const Tensor& input, int64_t dim, std::optional<DType> dtype, bool product) {
  const Tensor x = summand(input, dtype);
  const int along = wrap_dim(dim, static_cast<int>(x.dim()));
  return door::call(
      op, {&x},
      [&] {
        Tensor out = empty(x.sizes(), x.options());
        kernels::Array from = array(x), to = array(out);
        if (x.dim() == 0) from.layout = to.layout = Layout::contiguous({1});
        backend(x).reduce->scan({to, from, along, product}, current_stream(x.device()));
        return out;
      },
      static_cast<int64_t>(along));
}

const Tensor& scan_(Op op, const Tensor& self, int64_t dim, bool product) {
  require_defined(self, "self");
  const auto along = static_cast<int64_t>(wrap_dim(dim, static_cast<int>(self.dim())));
  return door::call_in_place(
      op, self, {}, [&] { self.copy_(scan(op, self, along, {}, product)); }, along);
}

FoldKind norm_kind(double p) {
  if (p == 0) return {Fold::sum, Map::nonzero};
  if (p == 1) return {Fold::sum, Map::abs};
  if (p == 2) return {Fold::sum, Map::square, Finish::sqrt};
  if (std::isinf(p)) return {p > 0 ? Fold::max : Fold::min, Map::abs};
  return {Fold::sum, Map::power, Finish::root, p};
}

}  // namespace

// ---- one function, out form and method a row ------------------------------------------------------------------------

#define LORRY_TOTAL(name, fold, map, finish, result)                                                              \
  Tensor name(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {                      \
    return reduce<FoldResult::result>(Op::name, x, dims, keepdim, dtype, {Fold::fold, Map::map, Finish::finish}); \
  }                                                                                                               \
  const Tensor& name##_out(const Tensor& out, const Tensor& x, const Dims& dims, bool keepdim,                    \
                           std::optional<DType> dtype) {                                                          \
    const Running running(#name);                                                                                 \
    return write_out(out, name(x, dims, keepdim, dtype));                                                         \
  }                                                                                                               \
  Tensor Tensor::name(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {                         \
    return lorry::name(*this, dims, keepdim, dtype);                                                              \
  }
#define LORRY_CHOICE(name, fold, map, finish, result)                                                          \
  Tensor name(const Tensor& x, const Dims& dims, bool keepdim) {                                               \
    return reduce<FoldResult::result>(Op::name, x, dims, keepdim, {}, {Fold::fold, Map::map, Finish::finish}); \
  }                                                                                                            \
  const Tensor& name##_out(const Tensor& out, const Tensor& x, const Dims& dims, bool keepdim) {               \
    const Running running(#name);                                                                              \
    return write_out(out, name(x, dims, keepdim));                                                             \
  }                                                                                                            \
  Tensor Tensor::name(const Dims& dims, bool keepdim) const { return lorry::name(*this, dims, keepdim); }
#include "lorry/formula/reduce.def"

// ---- reductions with signatures of their own ------------------------------------------------------------------------

Tensor prod(const Tensor& input, std::optional<int64_t> dim, bool keepdim, std::optional<DType> dtype) {
  const Running running("prod");
  const Tensor x = summand(input, dtype);
  const Reduced r(x, one(dim), keepdim);
  return door::call(
      Op::prod, {&x}, [&] { return fold(x, r, x.dtype(), {Fold::prod}); }, r.dims, keepdim);
}

Tensor max(const Tensor& x) {
  const Running running("max");
  return amax(x);
}
Tensor min(const Tensor& x) {
  const Running running("min");
  return amin(x);
}

std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim) {
  const Running running("max");
  auto [values, indices] = extreme_along(Op::max, x, dim, keepdim, true);
  return {values, indices};
}

std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim) {
  const Running running("min");
  auto [values, indices] = extreme_along(Op::min, x, dim, keepdim, false);
  return {values, indices};
}

std::tuple<Tensor, Tensor> aminmax_over(const Tensor& x, const Dims& dims, bool keepdim) {
  const Running running("aminmax");
  require_defined(x, "x");
  const Reduced r(x, dims, keepdim);
  r.require_elements(x);
  auto [smallest, largest] = door::call(
      Op::aminmax, {&x},
      [&] {
        std::array<Tensor, 2> out{r.result(x, x.dtype()), r.result(x, x.dtype())};
        backend(x).reduce->range({r.array(out[0]), r.array(out[1]), array(x)}, current_stream(x.device()));
        return out;
      },
      r.dims, keepdim);
  return {smallest, largest};
}
std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return aminmax_over(x, one(dim), keepdim);
}

Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Running running("argmax");
  return position(Op::argmax, x, dim, keepdim, true);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Running running("argmin");
  return position(Op::argmin, x, dim, keepdim, false);
}

Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  const Running running("count_nonzero");
  require_defined(x, "x");
  const Reduced r(x, dims, false);
  return door::call(
      Op::count_nonzero, {&x},
      [&] {
        return fold(x, r, kI64, {Fold::sum, Map::nonzero});
      },
      r.dims);
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const Running running("var");
  return moment(Op::var, x, dims, correction, keepdim, false);
}
Tensor std(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const Running running("std");
  return moment(Op::std, x, dims, correction, keepdim, true);
}

std::tuple<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const Running running("var_mean");
  return {var(x, dims, correction, keepdim), mean(x, dims, keepdim)};
}

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  const Running running("norm");
  require_floating(x);
  const Reduced r(x, dims, keepdim);
  if (std::isinf(p) || p < 0) r.require_elements(x);
  return door::call(
      Op::norm, {&x}, [&] { return fold(x, r, x.dtype(), norm_kind(p)); }, p, r.dims, keepdim);
}

Tensor logsumexp(const Tensor& input, const Dims& dims, bool keepdim) {
  const Running running("logsumexp");
  require_defined(input, "x");
  const Tensor x = is_floating(input.dtype()) ? input : input.to(kF32);
  const Reduced r(x, dims, keepdim);
  return door::call(
      Op::logsumexp, {&x},
      [&] {
        if (r.count(x) == 0) return r.result(x, x.dtype()).fill_(-INFINITY);
        const Tensor wide = x.dtype() == kF64 ? x : x.to(kF32), peak = wide.amax(r.dims, true);
        // An infinite peak would give inf - inf; around 0 the formula is right.
        const Tensor shift = peak.masked_fill(peak.isinf(), 0);
        return reshape_result(wide.sub(shift).exp_().sum(r.dims, true).log_().add_(shift), r.sizes).to(x.dtype());
      },
      r.dims, keepdim);
}

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("cumsum");
  return scan(Op::cumsum, x, dim, dtype, false);
}
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("cumprod");
  return scan(Op::cumprod, x, dim, dtype, true);
}

// ---- out= -----------------------------------------------------------------------------------------------------------

const Tensor& prod_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim, bool keepdim,
                       std::optional<DType> dtype) {
  const Running running("prod");
  return write_out(out, prod(x, dim, keepdim, dtype));
}
std::tuple<Tensor, Tensor> max_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                   bool keepdim) {
  const Running running("max");
  return write_out(values, indices, max(x, dim, keepdim));
}
std::tuple<Tensor, Tensor> min_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                   bool keepdim) {
  const Running running("min");
  return write_out(values, indices, min(x, dim, keepdim));
}
std::tuple<Tensor, Tensor> aminmax_out(const Tensor& smallest, const Tensor& largest, const Tensor& x,
                                       std::optional<int64_t> dim, bool keepdim) {
  const Running running("aminmax");
  return write_out(smallest, largest, aminmax(x, dim, keepdim));
}
const Tensor& argmax_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Running running("argmax");
  return write_out(out, argmax(x, dim, keepdim));
}
const Tensor& argmin_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Running running("argmin");
  return write_out(out, argmin(x, dim, keepdim));
}
const Tensor& var_out(const Tensor& out, const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const Running running("var");
  return write_out(out, var(x, dims, correction, keepdim));
}
const Tensor& std_out(const Tensor& out, const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const Running running("std");
  return write_out(out, std(x, dims, correction, keepdim));
}
const Tensor& norm_out(const Tensor& out, const Tensor& x, double p, const Dims& dims, bool keepdim) {
  const Running running("norm");
  return write_out(out, norm(x, p, dims, keepdim));
}
const Tensor& logsumexp_out(const Tensor& out, const Tensor& x, const Dims& dims, bool keepdim) {
  const Running running("logsumexp");
  return write_out(out, logsumexp(x, dims, keepdim));
}
const Tensor& cumsum_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("cumsum");
  return write_out(out, cumsum(x, dim, dtype));
}
const Tensor& cumprod_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("cumprod");
  return write_out(out, cumprod(x, dim, dtype));
}

// ---- methods --------------------------------------------------------------------------------------------------------

Tensor Tensor::prod(std::optional<int64_t> dim, bool keepdim, std::optional<DType> dtype) const {
  return lorry::prod(*this, dim, keepdim, dtype);
}
Tensor Tensor::max() const { return lorry::max(*this); }
std::tuple<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim) const { return lorry::max(*this, dim, keepdim); }
Tensor Tensor::min() const { return lorry::min(*this); }
std::tuple<Tensor, Tensor> Tensor::min(int64_t dim, bool keepdim) const { return lorry::min(*this, dim, keepdim); }
std::tuple<Tensor, Tensor> Tensor::aminmax(std::optional<int64_t> dim, bool keepdim) const {
  return lorry::aminmax(*this, dim, keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const { return lorry::argmax(*this, dim, keepdim); }
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const { return lorry::argmin(*this, dim, keepdim); }
Tensor Tensor::var(const Dims& dims, double correction, bool keepdim) const {
  return lorry::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, double correction, bool keepdim) const {
  return lorry::std(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(double p, const Dims& dims, bool keepdim) const { return lorry::norm(*this, p, dims, keepdim); }
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const { return lorry::logsumexp(*this, dims, keepdim); }
Tensor Tensor::count_nonzero(const Dims& dims) const { return lorry::count_nonzero(*this, dims); }
Tensor Tensor::cumsum(int64_t dim, std::optional<DType> dtype) const { return lorry::cumsum(*this, dim, dtype); }
const Tensor& Tensor::cumsum_(int64_t dim) const {
  const Running running("cumsum");
  return scan_(Op::cumsum, *this, dim, false);
}
Tensor Tensor::cumprod(int64_t dim, std::optional<DType> dtype) const { return lorry::cumprod(*this, dim, dtype); }
const Tensor& Tensor::cumprod_(int64_t dim) const {
  const Running running("cumprod");
  return scan_(Op::cumprod, *this, dim, true);
}

}  // namespace lorry
