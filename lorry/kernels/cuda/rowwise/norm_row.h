#pragma once

// The last step of a norm: a normalised row is scaled and shifted.

#include "lorry/kernels/cuda/rowwise/rows.h"

namespace lorry::kernels::cuda {

/// Each may be null.
template <class T>
struct NormWeights {
  using C = Accumulate<T>;
  const T *weight, *bias;

  void addresses(auto& visit) const { visit(weight, bias); }

#ifdef __CUDACC__
  /// Whether both can be read in whole runs along with a row whose body begins after `head` elements.
  __device__ __forceinline__ bool aligned(int head) const {
    return (!weight || on_16(weight + head)) && (!bias || on_16(bias + head));
  }
  /// Scales and shifts a run, from element i on.
  template <class Index>
  __device__ __forceinline__ void apply(C (&v)[kRun<T>], Index i, bool aligned) const {
    C w[kRun<T>], b[kRun<T>];
    if (weight) load_elements(weight + i, aligned, w);
    if (bias) load_elements(bias + i, aligned, b);
    if (weight && bias) {
#pragma unroll
      for (int e = 0; e < kRun<T>; ++e) v[e] = std::fma(v[e], w[e], b[e]);
      return;
    }
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) v[e] = std::fma(v[e], weight ? w[e] : 1, bias ? b[e] : 0);
  }
  /// The same for element i.
  template <class Index>
  __device__ __forceinline__ C applied(C v, Index i) const {
    return std::fma(v, weight ? static_cast<C>(weight[i]) : 1, bias ? static_cast<C>(bias[i]) : 0);
  }
#endif
};

}  // namespace lorry::kernels::cuda
