#pragma once

// Sorting and selecting by order. A NaN counts as greater than every number; equals keep their order, whether `stable`
// asks for it or not. Positions are i64.

#include "lorry/tensor/tensor.h"

namespace lorry {

/// The elements of each line along `dim` in order, and where they were.
std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = true);
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = true);
/// The k largest (or smallest) of each line, in order; among equals, the first. Throws IndexError when k is out of
/// range.
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true);
/// The k-th smallest of each line (k counts from 1) and where it was.
std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
/// The lower median of all elements: a number, whose gradient is shared evenly among those equal to it. A NaN among
/// them is the median.
Tensor median(const Tensor& x);
/// The lower median of each line and where it was; a NaN in the line is its median.
std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false);

/// The same into given tensors, of the results' sizes.
std::tuple<Tensor, Tensor> sort_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim = -1,
                                    bool descending = false, bool stable = true);
std::tuple<Tensor, Tensor> topk_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t k,
                                    int64_t dim = -1, bool largest = true, bool sorted = true);
std::tuple<Tensor, Tensor> kthvalue_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t k,
                                        int64_t dim = -1, bool keepdim = false);
std::tuple<Tensor, Tensor> median_out(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t dim,
                                      bool keepdim = false);

struct Unique {
  Tensor values;   ///< the distinct elements (or slices)
  Tensor inverse;  ///< where each element (of x's sizes) or slice (a vector) is in `values`; undefined unless asked for
  Tensor counts;   ///< how often each occurs; undefined unless asked for
};
/// The distinct elements of the whole tensor, in ascending order; with `dim` the distinct slices along it, in the order
/// of their elements, the first that differs deciding. They are always sorted. NaNs are distinct.
Unique unique(const Tensor& x, bool sorted = true, bool return_inverse = false, bool return_counts = false,
              std::optional<int64_t> dim = {});
/// The first of each run of equal elements of the flattened tensor, or with `dim` of equal slices.
Unique unique_consecutive(const Tensor& x, bool return_inverse = false, bool return_counts = false,
                          std::optional<int64_t> dim = {});

}  // namespace lorry
