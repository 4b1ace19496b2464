#pragma once

// Runs of elements of a floating type known at run time (f16, bf16, f32), as bits and as floats, and f32 numbers kept in two halves.

#include <cstring>

#include "lorry/formula/split.h"
#include "lorry/kernels/cuda/element.h"

namespace lorry::kernels::cuda {

/// N elements as they lie in memory, from the first word on: 4, or 1 in the low bits of one word.
template <int N>
struct RawRun {
  uint32_t words[N];
};

template <int N>
__device__ __forceinline__ RawRun<N> load_raw(const void* from, int i, int bytes) {
  static_assert(N == 1 || N == 4);
  RawRun<N> raw = {};
  if (bytes == 4) {
    const auto* at = static_cast<const uint32_t*>(from) + i;
    if constexpr (N == 4) {
      const uint4 words = *reinterpret_cast<const uint4*>(at);
      raw.words[0] = words.x, raw.words[1] = words.y, raw.words[2] = words.z, raw.words[3] = words.w;
    } else {
      raw.words[0] = *at;
    }
  } else {
    const auto* at = static_cast<const uint16_t*>(from) + i;
    if constexpr (N == 4) {
      const uint2 words = *reinterpret_cast<const uint2*>(at);
      raw.words[0] = words.x, raw.words[1] = words.y;
    } else {
      raw.words[0] = *at;
    }
  }
  return raw;
}

template <int N>
__device__ __forceinline__ void store_raw(void* to, int i, int bytes, const RawRun<N>& raw) {
  if (bytes == 4) {
    auto* at = static_cast<uint32_t*>(to) + i;
    if constexpr (N == 4)
      *reinterpret_cast<uint4*>(at) = make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]);
    else
      *at = raw.words[0];
  } else {
    auto* at = static_cast<uint16_t*>(to) + i;
    if constexpr (N == 4)
      *reinterpret_cast<uint2*>(at) = make_uint2(raw.words[0], raw.words[1]);
    else
      *at = static_cast<uint16_t>(raw.words[0]);
  }
}

/// The 16 bits of element e.
template <int N>
__device__ __forceinline__ uint16_t half_at(const RawRun<N>& raw, int e) {
  return static_cast<uint16_t>(raw.words[e / 2] >> 16 * (e % 2));
}

template <int N>
__device__ __forceinline__ void widen_raw(const RawRun<N>& raw, DType dtype, float (&values)[N]) {
  if (dtype == kF32) {
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] = __uint_as_float(raw.words[e]);
  } else if (dtype == kBF16) {
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] = __uint_as_float(static_cast<uint32_t>(half_at(raw, e)) << 16);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] = static_cast<float>(Float16::from_bits(half_at(raw, e)));
  }
}

template <int N>
__device__ __forceinline__ void store_narrowed(void* to, int i, DType dtype, const float (&values)[N]) {
  RawRun<N> raw = {};
  if (dtype == kF32) {
#pragma unroll
    for (int e = 0; e < N; ++e) raw.words[e] = __float_as_uint(values[e]);
  } else {
    const auto pair = [&](float low, float high) { return dtype == kBF16 ? narrow_pair<BFloat16>(low, high) : narrow_pair<Float16>(low, high); };
#pragma unroll
    for (int e = 0; e < N; e += 2) raw.words[e / 2] = pair(values[e], N > 1 ? values[e + (N > 1)] : 0.0f);
  }
  store_raw(to, i, dtype == kF32 ? 4 : 2, raw);
}

template <int N>
__device__ __forceinline__ void join_halves(const RawRun<N>& upper, const RawRun<N>& lower, float (&values)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) values[e] = __uint_as_float(formula::joined(half_at(upper, e), half_at(lower, e)));
}

template <int N>
__device__ __forceinline__ void split_halves(const float (&values)[N], RawRun<N>& upper, RawRun<N>& lower) {
#pragma unroll
  for (int w = 0; w < N; ++w) upper.words[w] = lower.words[w] = 0;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const uint32_t bits = __float_as_uint(values[e]), high = formula::upper_half(bits);
    upper.words[e / 2] |= high << 16 * (e % 2);
    lower.words[e / 2] |= formula::lower_half(bits, high) << 16 * (e % 2);
  }
}

}  // namespace lorry::kernels::cuda
