#pragma once

// Sort keys. Every value is mapped to an unsigned integer of its own width with the required order, so that two kinds
// of keys serve all types and both directions. Positions are sorted along to find the values again: of floats, keys do
// not tell all bits.

#include <limits>

#include "lorry/kernels/common/array.h"
#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

/// The number of bits of a key that distinguish values.
inline int key_bits(DType dtype) { return dtype == kBool ? 1 : 8 * static_cast<int>(size_of(dtype)); }

/// The keys of an array's elements: uint64_t for types of 8 bytes, uint32_t for others. a comes before b exactly if
/// key(a) < key(b). NaN is above everything (below, when descending), and -0 equals 0.
template <class Key>
struct Keys {
  const void* data;
  DType dtype;
  Key flip;  ///< the bits to invert: all for descending, none for ascending

  Keys(const Array& x, bool descending)
      : data(x.data),
        dtype(x.dtype),
        flip(descending ? static_cast<Key>(~Key(0) >> (8 * sizeof(Key) - key_bits(dtype))) : 0) {}
  void addresses(auto& visit) const { visit(data); }

#ifdef __CUDACC__
  __device__ __forceinline__ Key operator()(int64_t i) const {
    const uint32_t at[1] = {0};
    Key to[1];
    read(i, at, to);
    return to[0];
  }
  /// The keys of N elements that follow element `start`. There is one branch for all, so the loads are in flight
  /// together.
  template <int N>
  __device__ __forceinline__ void read(int64_t start, const uint32_t (&at)[N], Key (&to)[N]) const {
    visit(dtype, [&]<class T>(Type<T>) {
      if constexpr ((sizeof(T) == 8) != (sizeof(Key) == 8)) {
        __builtin_unreachable();  // `visit_key` uses the other kind of keys for it
      } else {
        const BitsOf<T>* const from = static_cast<const BitsOf<T>*>(data) + start;
        BitsOf<T> bits[N];
#pragma unroll
        for (int u = 0; u < N; ++u) bits[u] = from[at[u]];
#pragma unroll
        for (int u = 0; u < N; ++u) to[u] = ascending<T>(bits[u]) ^ flip;
      }
    });
  }

 private:
  template <class T>
  static __device__ __forceinline__ Key ascending(Key bits) {
    if constexpr (std::is_same_v<T, bool>)
      return bits != 0;
    else if constexpr (kFloatingType<T>)
      return of_float<T>(bits);
    else if constexpr (std::is_signed_v<T>)
      return bits ^ Key(1) << (8 * sizeof(T) - 1);
    else
      return bits;
  }
  template <class T>
  static __device__ __forceinline__ Key of_float(Key bits) {
    using Limits = std::numeric_limits<T>;
    constexpr Key kSign = Key(1) << (8 * sizeof(T) - 1), kEverything = kSign | (kSign - 1),
                  kLargest = std::bit_cast<BitsOf<T>>(Limits::has_infinity ? Limits::infinity() : Limits::max());
    if ((bits & ~kSign) > kLargest) return kEverything;
    if (bits == kSign) return kSign;
    return bits & kSign ? ~bits & kEverything : bits | kSign;
  }
#endif
};

/// Calls f(Type<Key>) with the type of key for a dtype.
template <class F>
decltype(auto) visit_key(DType dtype, F&& f) {
  if (size_of(dtype) == 8) return f(Type<uint64_t>{});
  return f(Type<uint32_t>{});
}

#ifdef __CUDACC__
/// to[at] = from[i], of a dtype known at run time. Truth values are written as 0 or 1.
__device__ __forceinline__ void copy_element(void* to, int64_t at, const void* from, int64_t i, DType dtype) {
  visit(dtype, [&]<class T>(Type<T>) {
    const auto bits = static_cast<const BitsOf<T>*>(from)[i];
    static_cast<BitsOf<T>*>(to)[at] = std::is_same_v<T, bool> ? bits != 0 : bits;
  });
}
#endif

}  // namespace lorry::kernels::cuda
