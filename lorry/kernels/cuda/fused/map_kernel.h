#pragma once

// Parts of generated pointwise kernels (emit.h). A block computes a tile of consecutive elements. A thread computes
// several groups of the tile, a block's width apart: it loads the elements of all operands, computes, and stores the
// results. A group has kWidth adjacent elements if every operand is contiguous or repeated along them and every group
// is aligned; otherwise, and in the last tile, it has one element. How operands run along the innermost dimension is
// known when the kernel is compiled (Along); sizes and strides are arguments.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lorry/device/cuda/begin_programmatic.h"
#include "lorry/kernels/cuda/common/divider.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/pointwise/evaluate.h"

namespace lorry::kernels::cuda {

/// How an operand runs along the innermost dimension.
enum class Along : uint8_t {
  run,      ///< contiguous
  same,     ///< one element
  strided,  ///< with a stride: groups are single elements
};

/// A kernel's argument. It contains each distinct layout of the call once; dimension 0 is the innermost. The host
/// writes the same words (map_arguments.h).
template <int kOperands, int kNumbers, int kLayouts, int kRank, bool kWide>
struct MapArguments {
  int64_t elements;
  uint64_t vectors;   ///< not 0: groups have kWidth elements and are aligned
  uint64_t operands;  ///< kOperands
  void* at[kOperands];
  uint64_t numbers[kNumbers > 0 ? kNumbers : 1];
  int64_t strides[kLayouts][kRank];
  std::conditional_t<kWide, WideDivider, Divider> sizes[kRank];
};

/// Computes the offset of an element in each layout.
template <int kOperands, int kNumbers, int kLayouts, int kRank, bool kWide>
__device__ __forceinline__ void offsets_of(const MapArguments<kOperands, kNumbers, kLayouts, kRank, kWide>& a,
                                           int64_t element, int64_t (&offsets)[kLayouts]) {
  using Index = std::conditional_t<kWide, int64_t, uint32_t>;
  if constexpr (kRank == 1) {
#pragma unroll
    for (int l = 0; l < kLayouts; ++l) offsets[l] = element * a.strides[l][0];
  } else {
    Index left = static_cast<Index>(element);
#pragma unroll
    for (int l = 0; l < kLayouts; ++l) offsets[l] = 0;
#pragma unroll
    for (int d = 0; d < kRank; ++d) {
      const Index next = d + 1 == kRank ? 0 : static_cast<Index>(a.sizes[d](left));
      const Index at = d + 1 == kRank ? left : static_cast<Index>(left - next * a.sizes[d].divisor);
#pragma unroll
      for (int l = 0; l < kLayouts; ++l) offsets[l] += static_cast<int64_t>(at) * a.strides[l][d];
      left = next;
    }
  }
}

// ---- elements in registers ------------------------------------------------------------------------------------------

/// A value of element type T in a register: narrow floats as f32, bool as 0 or 1.
template <class T>
using Held = std::conditional_t<kNarrowType<T>, float, Stored<T>>;

template <class T>
__device__ __forceinline__ Held<T> hold(Stored<T> x) {
  if constexpr (kNarrowType<T>)
    return static_cast<float>(x);
  else if constexpr (std::is_same_v<T, bool>)
    return x != 0;
  else
    return x;
}

/// Converts a value and rounds it to type To.
template <class To, class From>
__device__ __forceinline__ Held<To> convert(Held<From> x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (kNarrowType<From>)
    return hold<To>(cast<To, float>(x));
  else
    return hold<To>(cast<To, From>(x));
}

/// One operator: operands of types X are computed in C by the formula, then rounded to the operator's Result type and
/// to T.
template <class Formula, class C, class Result, class T, class... X>
__device__ __forceinline__ Held<T> step(Held<X>... x) {
  const C operands[] = {convert<C, X>(x)...};
  return convert<T, Result>(convert<Result, C>(compute<Formula>(operands, kNarrowType<T>)));
}

/// A number of the host, already converted to T: f32, f64 or i64.
template <class T>
__device__ __forceinline__ T number(uint64_t bits) {
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
  else
    return std::bit_cast<T>(bits);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/// The elements of a group in memory.
template <class T, int kWidth>
struct Elements {
  Stored<T> at[kWidth];
};
/// Elements that are loaded or stored with one access of up to 16 bytes.
template <class T, int kWidth>
inline constexpr int kAccess = static_cast<int>(sizeof(Stored<T>)) * kWidth > 16 ? kRun<Stored<T>> : kWidth;

template <class T, Along kAlong, int kWidth>
__device__ __forceinline__ Elements<T, kWidth> load(const void* data, int64_t offset) {
  constexpr int kPart = kAccess<T, kWidth>;
  Elements<T, kWidth> x;
  const auto* const from = static_cast<const Stored<T>*>(data) + offset;
  if constexpr (kAlong != Along::run) {
    x.at[0] = *from;
  } else {
#pragma unroll
    for (int part = 0; part < kWidth; part += kPart) {
      const auto run = load_run<Stored<T>, kPart>(from + part);
#pragma unroll
      for (int e = 0; e < kPart; ++e) x.at[part + e] = run.at[e];
    }
  }
  return x;
}

/// Element e of a group.
template <class T, Along kAlong, int kWidth>
__device__ __forceinline__ Held<T> element(const Elements<T, kWidth>& x, int e) {
  return hold<T>(x.at[kAlong == Along::run ? e : 0]);
}

template <class T, int kWidth>
__device__ __forceinline__ void store(void* data, int64_t offset, const Held<T> (&values)[kWidth]) {
  constexpr int kPart = kAccess<T, kWidth>;
  auto* const to = static_cast<Stored<T>*>(data) + offset;
#pragma unroll
  for (int part = 0; part < kWidth; part += kPart) {
    Run<Stored<T>, kPart> run;
#pragma unroll
    for (int e = 0; e < kPart; ++e) run.at[e] = static_cast<Stored<T>>(values[part + e]);
    store_run(to + part, run);
  }
}

}  // namespace lorry::kernels::cuda
