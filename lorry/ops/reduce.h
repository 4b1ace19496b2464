#pragma once

// Reductions and scans. `dims` names the dimensions to reduce, from the front or (negative) from the back; none means
// all. With keepdim they stay with size 1. Sums and products of bool and whole numbers are i64; a `dtype` converts the
// input first. f16 and bf16 are accumulated in f32 and f64, and a NaN among the elements shows in the result.

#include "lorry/tensor/tensor.h"

namespace lorry {

// What is one fold: a function and an out form for each row. The mean of nothing is NaN, and it throws DTypeError
// unless x or `dtype` is floating. The gradient of amax and amin is shared evenly among equals; they throw IndexError
// for an empty dimension.
#define LORRY_TOTAL(name, fold, map, finish, result)                                                          \
  Tensor name(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {}); \
  const Tensor& name##_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false,   \
                           std::optional<DType> dtype = {});
#define LORRY_CHOICE(name, fold, map, finish, result)                        \
  Tensor name(const Tensor& x, const Dims& dims = {}, bool keepdim = false); \
  const Tensor& name##_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false);
#include "lorry/formula/reduce.def"

/// Over one dimension, or over all.
Tensor prod(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, std::optional<DType> dtype = {});

/// The largest and smallest of all elements.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// The extreme elements along a dimension and their (first) positions, to which the gradient goes.
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
/// The smallest and the largest element in one pass, along a dimension or of all. A NaN among the elements makes both
/// NaN. Equals share the gradient. Throws IndexError for an empty dimension.
std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// Their positions alone (i64); without `dim`, the position in row-major order.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);

Tensor count_nonzero(const Tensor& x, const Dims& dims = {});

/// The squared deviations from the mean, divided by max(0, n - correction). Floating input.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                                    bool keepdim = false);
/// (sum |x|^p)^(1/p); p = 0 counts what is not zero, +inf and -inf give the extreme magnitudes. Floating input.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
/// log(sum(exp(x))), computed around the maximum.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});

/// The same into `out`, which must have the result's sizes and a dtype that can store it.
const Tensor& prod_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                       std::optional<DType> dtype = {});
std::tuple<Tensor, Tensor> max_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                   bool keepdim = false);
std::tuple<Tensor, Tensor> min_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                   bool keepdim = false);
std::tuple<Tensor, Tensor> aminmax_out(const Tensor& smallest, const Tensor& largest, const Tensor& x,
                                       std::optional<int64_t> dim = {}, bool keepdim = false);
const Tensor& argmax_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
const Tensor& argmin_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
const Tensor& var_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, double correction = 1,
                      bool keepdim = false);
const Tensor& std_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, double correction = 1,
                      bool keepdim = false);
const Tensor& norm_out(const Tensor& out, const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
const Tensor& logsumexp_out(const Tensor& out, const Tensor& x, const Dims& dims, bool keepdim = false);
const Tensor& cumsum_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
const Tensor& cumprod_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype = {});

}  // namespace lorry
