#pragma once

// Elements in memory and in registers: conversions between any two types (the rules of kernels/common/convert.h), loads
// and stores whose type is known at run time only, and runs of 16 bytes.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lorry/formula/scalar.h"
#include "lorry/layout/dtype_enum.h"

namespace lorry::kernels::cuda {

/// 16-bit floats, which are widened and narrowed in pairs.
template <class T>
inline constexpr bool kHalf = kNarrowType<T> && sizeof(T) == 2;
/// The stored type: a bool is a byte, and every byte but 0 is true.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
/// An unsigned integer of the size of T.
template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

/// The value type of formulas for a compute type; integers wrap.
template <class C>
using Value = std::conditional_t<std::is_integral_v<C>, formula::Whole, C>;

__device__ __forceinline__ int64_t whole(double x) {
  return x != x ? 0 : x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : static_cast<int64_t>(x);
}

template <class To, class From>
__device__ __forceinline__ Stored<To> cast(Stored<From> x) {
  if constexpr (std::is_same_v<To, From> && !std::is_same_v<To, bool>)
    return x;
  else if constexpr (kNarrowType<From>)
    return cast<To, float>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>)
    return x != Stored<From>(0);
  else if constexpr (std::is_same_v<From, bool>)
    return cast<To, int64_t>(x != 0);
  else if constexpr (kNarrowType<To>)
    return To(static_cast<float>(x));
  else if constexpr (kFloatingType<From> && !kFloatingType<To>)
    return static_cast<To>(whole(static_cast<double>(x)));
  else
    return static_cast<To>(x);
}

/// Element `index` after `data`, of a type known at run time, converted to C. The branch is uniform over all threads.
template <class C>
__device__ __forceinline__ C load_as(const void* data, DType dtype, int64_t index) {
  return visit(dtype, [&]<class T>(Type<T>) -> C { return cast<C, T>(static_cast<const Stored<T>*>(data)[index]); });
}

template <class C>
__device__ __forceinline__ void store_as(void* data, DType dtype, int64_t index, C value) {
  visit(dtype, [&]<class T>(Type<T>) { static_cast<Stored<T>*>(data)[index] = cast<T, C>(value); });
}

/// N elements that are loaded or stored with one access of up to 16 bytes. T is a stored type.
template <class T, int N>
struct alignas(sizeof(T) * N) Run {
  T at[N];
};
/// The number of elements in 16 bytes.
template <class T>
inline constexpr int kRun = 16 / static_cast<int>(sizeof(T));

template <class T, int N>
__device__ __forceinline__ Run<T, N> load_run(const T* from) {
  return *reinterpret_cast<const Run<T, N>*>(from);
}
template <class T, int N>
__device__ __forceinline__ void store_run(T* to, const Run<T, N>& run) {
  *reinterpret_cast<Run<T, N>*>(to) = run;
}

#ifdef __CUDACC__
/// For runs that are not read again soon: these leave the cache first. This saves 1 to 3 % of an optimizer's step, and
/// as much of the kernel that follows, which otherwise finds the cache full of such runs.
template <class T, int N>
__device__ __forceinline__ Run<T, N> load_streaming(const T* from) {
  using Word =
      std::conditional_t<sizeof(Run<T, N>) == 16, float4, std::conditional_t<sizeof(Run<T, N>) == 8, float2, float>>;
  return std::bit_cast<Run<T, N>>(__ldcs(reinterpret_cast<const Word*>(from)));
}
/// Loads 16 bytes that are not read again and not written while the kernel runs, bypassing the first-level cache. On an
/// H200 this shortens column sums by 4 % if the data come from memory; if they come from the second-level cache, it
/// costs up to 38 %.
template <class T>
__device__ __forceinline__ Run<T, kRun<T>> load_once(const T* from) {
  uint4 bytes;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bytes.x), "=r"(bytes.y), "=r"(bytes.z), "=r"(bytes.w)
               : "l"(__cvta_generic_to_global(from)));
  return std::bit_cast<Run<T, kRun<T>>>(bytes);
}
template <class T, int N>
__device__ __forceinline__ void store_streaming(T* to, const Run<T, N>& run) {
  using Word =
      std::conditional_t<sizeof(Run<T, N>) == 16, float4, std::conditional_t<sizeof(Run<T, N>) == 8, float2, float>>;
  __stcs(reinterpret_cast<Word*>(to), std::bit_cast<Word>(run));
}

// Two 16-bit elements in one word: one instruction for each to widen, one for both to narrow. The rounding is that of
// the element types.
template <class T>
__device__ __forceinline__ float2 widen_pair(uint32_t word) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  else
    return {static_cast<float>(T::from_bits(static_cast<uint16_t>(word))),
            static_cast<float>(T::from_bits(static_cast<uint16_t>(word >> 16)))};
}
template <class T>
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  uint32_t word;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else {
    static_assert(std::is_same_v<T, Float16>, "no instruction for this type");
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}
#endif

inline bool aligned16(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

}  // namespace lorry::kernels::cuda
