#pragma once

// Reductions and scans. `dims` names the dimensions to reduce, from the front or (negative) from the back; none means
// all. With keepdim they stay with size 1. Sums and products of bool and whole numbers are i64; a `dtype` converts the
// input first. f16 and bf16 are accumulated in f32 and f64, and a NaN among the elements shows in the result.

#include "lorry/tensor/tensor.h"

namespace lorry {

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
/// Throws DTypeError unless x or `dtype` is floating. The mean of nothing is NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
/// Over one dimension, or over all.
Tensor prod(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, std::optional<DType> dtype = {});

/// The largest and smallest elements. The gradient is shared evenly among equals. Throws IndexError for an empty
/// dimension.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// The extreme elements along a dimension and their (first) positions, to which the gradient goes.
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
/// Their positions alone (i64); without `dim`, the position in row-major order.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);

/// bool (u8 for u8, as in PyTorch): whether any, or every, element is not zero.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
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
const Tensor& sum_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false,
                      std::optional<DType> dtype = {});
const Tensor& mean_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false,
                       std::optional<DType> dtype = {});
const Tensor& prod_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                       std::optional<DType> dtype = {});
const Tensor& amax_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false);
const Tensor& amin_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false);
std::tuple<Tensor, Tensor> max_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                   bool keepdim = false);
std::tuple<Tensor, Tensor> min_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                   bool keepdim = false);
const Tensor& argmax_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
const Tensor& argmin_out(const Tensor& out, const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
const Tensor& any_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false);
const Tensor& all_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, bool keepdim = false);
const Tensor& var_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, double correction = 1,
                      bool keepdim = false);
const Tensor& std_out(const Tensor& out, const Tensor& x, const Dims& dims = {}, double correction = 1,
                      bool keepdim = false);
const Tensor& norm_out(const Tensor& out, const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
const Tensor& logsumexp_out(const Tensor& out, const Tensor& x, const Dims& dims, bool keepdim = false);
const Tensor& cumsum_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
const Tensor& cumprod_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype = {});

}  // namespace lorry
