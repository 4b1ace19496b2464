#pragma once

// What the reductions share: the dimensions that are reduced, and the two shapes of the result.

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"

namespace lorry {

struct Reduced {
  Dims dims;           ///< wrapped, distinct; empty for a 0-d tensor
  Dims keepdim_sizes;  ///< the sizes of x with 1 where a dimension is reduced
  Dims sizes;          ///< the sizes of the result

  Reduced(const Tensor& x, const Dims& given, bool keepdim) : dims(wrap_dims(given, static_cast<int>(x.dim()))) {
    if (x.dim() == 0) dims.clear();
    for (int d = 0; d < x.dim(); ++d) {
      const bool reduced = dims.contains(d);
      keepdim_sizes.push_back(reduced ? 1 : x.size(d));
      if (keepdim || !reduced) sizes.push_back(keepdim_sizes.back());
    }
  }

  /// Elements that go into one result.
  int64_t count(const Tensor& x) const {
    int64_t n = 1;
    for (const int64_t d : dims) n *= x.size(d);
    return n;
  }

  /// For folds without an identity.
  void require_elements(const Tensor& x) const {
    for (const int64_t d : dims)
      require<IndexError>(
          x.size(d) > 0,
          "dimension {} is empty, so there is no element to choose; got {}; expected sizes > 0 where it reduces", d, x);
  }

  Tensor result(const Tensor& x, DType dtype) const { return empty(sizes, {dtype, x.device()}); }

  /// The result as reduction kernels take it: with a 1 where x is reduced.
  kernels::Array array(const Tensor& out) const {
    return {out.data_ptr(), out.dtype(), Layout::contiguous(keepdim_sizes)};
  }
};

}  // namespace lorry
