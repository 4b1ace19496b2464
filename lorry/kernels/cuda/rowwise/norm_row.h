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

#ifdef __CUDACC__
/// The weights of a row that a team holds, in registers.
template <class T, int kRuns>
class HeldWeights {
 public:
  using C = Accumulate<T>;

  __device__ __forceinline__ HeldWeights(const NormWeights<T>& from, const Cut<T, int>& cut, const Team& team)
      : has_weight_(from.weight != nullptr), has_bias_(from.bias != nullptr) {
    const bool aligned = from.aligned(cut.head);
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int run = team.lane + k * team.lanes;
      if (run >= cut.body) continue;
      if (has_weight_) weight_[k] = load(from.weight + cut.at(run), aligned);
      if (has_bias_) bias_[k] = load(from.bias + cut.at(run), aligned);
    }
  }
  /// Scales and shifts run k of the lane, as NormWeights does.
  __device__ __forceinline__ void apply(C (&v)[kRun<T>], int k) const {
    C w[kRun<T>], b[kRun<T>];
    if (has_weight_) unpack<T>(weight_[k], w);
    if (has_bias_) unpack<T>(bias_[k], b);
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) v[e] = std::fma(v[e], has_weight_ ? w[e] : 1, has_bias_ ? b[e] : 0);
  }

 private:
  static __device__ __forceinline__ uint4 load(const T* from, bool aligned) {
    if (aligned) return load16<false>(from);
    Run<T, kRun<T>> run;
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) run.at[e] = from[e];
    return std::bit_cast<uint4>(run);
  }

  bool has_weight_, has_bias_;
  uint4 weight_[kRuns], bias_[kRuns];
};
#endif

}  // namespace lorry::kernels::cuda
