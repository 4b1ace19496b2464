#pragma once

// The kernels of pointwise.h, for one formula each. They are static because several objects may instantiate a formula
// that two rows share.

#include <algorithm>
#include <cstring>
#include <utility>

#include "lorry/device/cuda/launch.h"
#include "lorry/formula/formulas.h"
#include "lorry/kernels/cuda/pointwise/evaluate.h"
#include "lorry/kernels/cuda/pointwise/pointwise.h"

namespace lorry::kernels::cuda {

// ---- contiguous -----------------------------------------------------------------------------------------------------

/// Runs in flight per thread: more would take registers from formulas that are called, and leave fewer waves of blocks,
/// which overlap.
template <class Formula, class T, int kArity>
inline constexpr int kContiguousRuns = kArity > 2 || sizeof(T) <= 2 ||
                                               (formula::kLong<Formula, ComputeOf<T>> && (kArity > 1 || sizeof(T) > 4))
                                           ? 1
                                           : 2;
/// Blocks that a multiprocessor must have registers for. With all of its threads at work, a few million elements are
/// one wave of blocks; with a block less, two, of which the second is nearly empty.
template <class T, int kArity>
inline constexpr int kContiguousBlocks = kArity == 1 && sizeof(T) <= 4 ? 2048 / kPointwiseBlock : 1;

/// Reads sizeof(T) per operand and element, and writes as much (a byte for a bool). A block computes kPointwiseBlock *
/// kContiguousRuns runs; the last block also computes the elements before the first run and after the last. kTruth: the
/// result is bool. kChoice: the first operand is bool.
// Long: its operands stay in registers from loads that are in flight together to the stores.
template <class Formula, int kArity, class T, bool kTruth, bool kChoice>
static __global__ void __launch_bounds__(kPointwiseBlock, kContiguousBlocks<T, kArity>)
    contiguous(const __grid_constant__ ContiguousCall<kArity, ComputeOf<T>> call) {
  lorry::cuda::begin_programmatic();
  using C = ComputeOf<T>;
  using Out = std::conditional_t<kTruth, bool, T>;
  using Condition = std::conditional_t<kChoice, bool, T>;
  constexpr int kLength = kRun<T>, kRuns = kContiguousRuns<Formula, T, kArity>;
  // 16-bit elements are widened and narrowed in pairs.
  constexpr int kPair = kHalf<T> ? 2 : 1, kWords = kLength / kPair;
  using Word = std::conditional_t<kHalf<T>, uint32_t, BitsOf<T>>;
  // Elements that are computed together. Several powers would take so many registers that fewer blocks run.
  constexpr int kBatch = kShortWay<Formula, C> && !std::is_same_v<Formula, formula::Pow> ? std::min(4, kLength) : kPair;
  // Functions of f64 are long chains of steps; inlined, those of a run's two elements overlap.
  constexpr bool kInline = std::is_same_v<T, double> && kArity == 1;
  // Whether a number is repeated like elements, so that no element asks what its operands are.
  constexpr bool kRepeats = std::is_same_v<T, C> && !kChoice;
  Run<Word, kWords> x[kArity][kRuns];
  Run<uint8_t, kLength> conditions[kRuns];

  const int64_t first = int64_t{blockIdx.x} * (kRuns * kPointwiseBlock) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kRuns; ++u) {
    const int64_t run = first + u * kPointwiseBlock;
    if (run >= call.runs) continue;
#pragma unroll
    for (int k = 0; k < kArity; ++k) {
      if (call.in[k] == nullptr) {
        if constexpr (kRepeats)
          for (Word& word : x[k][u].at) word = std::bit_cast<Word>(call.numbers[k]);
      } else if (kChoice && k == 0) {
        conditions[u] = load_run<uint8_t, kLength>(static_cast<const uint8_t*>(call.in[k]) + run * kLength);
      } else {
        x[k][u] = load_run<Word, kWords>(static_cast<const Word*>(call.in[k]) + run * kWords);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kRuns; ++u) {
    const int64_t run = first + u * kPointwiseBlock;
    if (run >= call.runs) continue;
    constexpr bool kPacked = kHalf<T> && !kTruth;
    Run<Stored<Out>, kLength> result;
    Run<uint32_t, 4> packed;
#pragma unroll
    for (int i = 0; i < kLength; i += kBatch) {
      C values[kBatch][kArity], results[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; j += kPair) {
#pragma unroll
        for (int k = 0; k < kArity; ++k) {
          if (!kRepeats && call.in[k] == nullptr) {
            for (int p = 0; p < kPair; ++p) values[j + p][k] = call.numbers[k];
          } else if (kChoice && k == 0) {
            for (int p = 0; p < kPair; ++p) values[j + p][k] = cast<C, bool>(conditions[u].at[i + j + p]);
          } else if constexpr (kHalf<T>) {
            const float2 pair = widen_pair<T>(x[k][u].at[(i + j) / 2]);
            values[j][k] = pair.x, values[j + 1][k] = pair.y;
          } else {
            values[j][k] = cast<C, T>(std::bit_cast<Stored<T>>(x[k][u].at[i + j]));
          }
        }
      }
      compute<Formula, kInline>(values, kPacked, results);
#pragma unroll
      for (int j = 0; j < kBatch; j += kPair) {
        if constexpr (kPacked)
          packed.at[(i + j) / 2] = narrow_pair<T>(results[j], results[j + 1]);
        else
          for (int p = 0; p < kPair; ++p) result.at[i + j + p] = cast<Out, C>(results[j + p]);
      }
    }
    if constexpr (kPacked)
      store_run(static_cast<uint32_t*>(call.out) + run * 4, packed);
    else
      store_run(static_cast<Stored<Out>*>(call.out) + run * kLength, result);
  }

  const int edge = static_cast<int>(threadIdx.x);
  if (blockIdx.x + 1 != gridDim.x || edge >= call.head + call.tail) return;
  const int64_t index = edge < call.head ? int64_t{edge} - call.head : call.runs * kLength + edge - call.head;
  C values[kArity];
#pragma unroll
  for (int k = 0; k < kArity; ++k) {
    if (call.in[k] == nullptr)
      values[k] = call.numbers[k];
    else if (kChoice && k == 0)
      values[k] = cast<C, Condition>(static_cast<const Stored<Condition>*>(call.in[k])[index]);
    else
      values[k] = cast<C, T>(static_cast<const Stored<T>*>(call.in[k])[index]);
  }
  static_cast<Stored<Out>*>(call.out)[index] = cast<Out, C>(compute<Formula>(values, kHalf<T> && !kTruth));
}

// ---- strided --------------------------------------------------------------------------------------------------------

/// kLanes elements in their stored form, packed from the first word on.
struct Raw {
  uint32_t words[4];
};
template <class C>
struct Lanes {
  C at[kLanes<C>];
};
template <class C>
struct Four {
  C at[4];
};

/// Loads kLanes elements of `size` <= sizeof(C) bytes, from an address that is a multiple of their total size.
template <class C>
__device__ __forceinline__ Raw load_lanes(const void* from, int size) {
  switch (size * kLanes<C>) {
    case 2:
      return {*static_cast<const uint16_t*>(from)};
    case 4:
      return {*static_cast<const uint32_t*>(from)};
    case 8: {
      const uint2 words = *static_cast<const uint2*>(from);
      return {words.x, words.y};
    }
    default: {
      const uint4 words = *static_cast<const uint4*>(from);
      return {words.x, words.y, words.z, words.w};
    }
  }
}
template <class C>
__device__ __forceinline__ void store_lanes(void* to, int size, const Raw& raw) {
  switch (size * kLanes<C>) {
    case 2:
      *static_cast<uint16_t*>(to) = static_cast<uint16_t>(raw.words[0]);
      return;
    case 4:
      *static_cast<uint32_t*>(to) = raw.words[0];
      return;
    case 8:
      *static_cast<uint2*>(to) = make_uint2(raw.words[0], raw.words[1]);
      return;
    default:
      *static_cast<uint4*>(to) = make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]);
  }
}
/// Loads one element and repeats it in every lane.
template <class C>
__device__ __forceinline__ Raw repeat_lanes(const void* from, int size) {
  uint32_t low, high;
  switch (size) {
    case 1:
      low = high = *static_cast<const uint8_t*>(from) * 0x01010101u;
      break;
    case 2:
      low = high = *static_cast<const uint16_t*>(from) * 0x00010001u;
      break;
    case 4:
      low = high = *static_cast<const uint32_t*>(from);
      break;
    default: {
      const uint2 word = *static_cast<const uint2*>(from);
      low = word.x, high = word.y;
    }
  }
  return {low, high, low, high};
}

template <class C, class T>
__device__ __forceinline__ Lanes<C> widen_from(const Raw& raw) {
  Lanes<C> lanes;
#pragma unroll
  for (int i = 0; i < kLanes<C>; ++i) {
    if constexpr (sizeof(T) == 8)
      lanes.at[i] = cast<C, T>(std::bit_cast<T>(raw.words[2 * i] | static_cast<uint64_t>(raw.words[2 * i + 1]) << 32));
    else if constexpr (sizeof(T) == 4)
      lanes.at[i] = cast<C, T>(std::bit_cast<T>(raw.words[i]));
    else if constexpr (sizeof(T) == 2)
      lanes.at[i] = cast<C, T>(std::bit_cast<T>(static_cast<uint16_t>(raw.words[i / 2] >> 16 * (i % 2))));
    else
      lanes.at[i] = cast<C, T>(std::bit_cast<Stored<T>>(static_cast<uint8_t>(raw.words[i / 4] >> 8 * (i % 4))));
  }
  return lanes;
}
/// What cast gives, in fewer steps: the instruction clamps as cast does, but gives no 0 for NaN.
template <class T, class C>
__device__ __forceinline__ Stored<T> cast_result(C x) {
  if constexpr (std::is_same_v<C, float> && std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<T>(x != x ? 0 : __float2ll_rz(x));
  else if constexpr (std::is_same_v<C, double> && std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<T>(x != x ? 0 : __double2ll_rz(x));
  else
    return cast<T, C>(x);
}
template <class C, class T>
__device__ __forceinline__ Raw narrow_to(const Lanes<C>& lanes) {
  Raw raw = {};
#pragma unroll
  for (int i = 0; i < kLanes<C>; ++i) {
    const Stored<T> value = cast_result<T, C>(lanes.at[i]);
    if constexpr (sizeof(T) == 8) {
      raw.words[2 * i] = static_cast<uint32_t>(std::bit_cast<uint64_t>(value));
      raw.words[2 * i + 1] = static_cast<uint32_t>(std::bit_cast<uint64_t>(value) >> 32);
    } else if constexpr (sizeof(T) == 4) {
      raw.words[i] = std::bit_cast<uint32_t>(value);
    } else if constexpr (sizeof(T) == 2) {
      raw.words[i / 2] |= static_cast<uint32_t>(std::bit_cast<uint16_t>(value)) << 16 * (i % 2);
    } else {
      raw.words[i / 4] |= static_cast<uint32_t>(std::bit_cast<uint8_t>(value)) << 8 * (i % 4);
    }
  }
  return raw;
}

// The types that are usually computed in C are converted inline, others by a call, so that kernels stay short.

/// Calls f(Type<T>) for the dtypes no larger than C, the only ones in vector accesses. Does not use `visit`, which
/// would instantiate f for the other dtypes too.
template <class C, class F>
__device__ __forceinline__ auto visit_lanes(DType dtype, const F& f) {
  switch (dtype) {
#define LORRY_DTYPE(name, Name, text, T, dlpack, safetensors)  \
  case k##Name:                                                \
    if constexpr (sizeof(T) <= sizeof(C)) return f(Type<T>()); \
    break;
#include "lorry/layout/dtypes.def"
  }
  return f(Type<bool>());
}
template <class C>
__device__ __noinline__ Lanes<C> widen_any(Raw raw, DType dtype) {
  return visit_lanes<C>(dtype, [&]<class T>(Type<T>) { return widen_from<C, T>(raw); });
}
template <class C>
__device__ __noinline__ Raw narrow_any(Lanes<C> lanes, DType dtype) {
  return visit_lanes<C>(dtype, [&]<class T>(Type<T>) { return narrow_to<C, T>(lanes); });
}
template <class C>
__device__ __forceinline__ Lanes<C> widen(const Raw& raw, DType dtype) {
  if (dtype == dtype_of<C>) return widen_from<C, C>(raw);
  if constexpr (std::is_same_v<C, float>)
    if (dtype == kBF16) return widen_from<C, BFloat16>(raw);
  if constexpr (std::is_same_v<C, int64_t>)
    if (dtype == kI32) return widen_from<C, int32_t>(raw);
  return widen_any<C>(raw, dtype);
}
template <class C>
__device__ __forceinline__ Raw narrow(const Lanes<C>& lanes, DType dtype) {
  if (dtype == dtype_of<C>) return narrow_to<C, C>(lanes);
  if constexpr (std::is_same_v<C, float>)
    if (dtype == kBF16) return narrow_to<C, BFloat16>(lanes);
  if constexpr (std::is_same_v<C, int64_t>)
    if (dtype == kI32) return narrow_to<C, int32_t>(lanes);
  return narrow_any<C>(lanes, dtype);
}

template <class C>
__device__ __noinline__ C load_any(const void* data, DType dtype, uint32_t index) {
  return load_as<C>(data, dtype, index);
}
template <class C>
__device__ __noinline__ void store_any(void* data, DType dtype, uint32_t index, C value) {
  const int whole_bytes = visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<int>(sizeof(T));
    } else {
      static_cast<Stored<T>*>(data)[index] = cast<T, C>(value);
      return 0;
    }
  });
  if (whole_bytes == 0) return;
  const int64_t bits = cast_result<int64_t, C>(value);  // integers keep the low bits that fit
  if (whole_bytes == 8)
    static_cast<int64_t*>(data)[index] = bits;
  else if (whole_bytes == 4)
    static_cast<int32_t*>(data)[index] = static_cast<int32_t>(bits);
  else if (whole_bytes == 2)
    static_cast<int16_t*>(data)[index] = static_cast<int16_t>(bits);
  else
    static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(bits);
}

template <class C, class T>
__device__ __forceinline__ Four<C> gather_from(const void* data, const uint32_t (&at)[4]) {
  const T* const from = static_cast<const T*>(data);
  return {cast<C, T>(from[at[0]]), cast<C, T>(from[at[1]]), cast<C, T>(from[at[2]]), cast<C, T>(from[at[3]])};
}
template <class C>
__device__ __forceinline__ Four<C> gather(const StridedOperand& place, const uint32_t (&at)[4]) {
  if (place.dtype == dtype_of<C>) return gather_from<C, C>(place.data, at);
  if constexpr (std::is_same_v<C, float>)
    if (place.dtype == kBF16) return gather_from<C, BFloat16>(place.data, at);
  Four<C> four;
#pragma unroll
  for (int j = 0; j < 4; ++j) four.at[j] = load_any<C>(place.data, place.dtype, at[j]);
  return four;
}
/// Stores the first `count` of four elements.
template <class C>
__device__ __forceinline__ void scatter(const StridedOperand& place, const uint32_t (&at)[4], const Four<C>& values,
                                        int count) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= count) break;
    if (place.dtype == dtype_of<C>)
      static_cast<C*>(place.data)[at[j]] = values.at[j];
    else
      store_any<C>(place.data, place.dtype, at[j], values.at[j]);
  }
}

/// Computes the offsets of every operand at several positions: the divisions overlap, and the loop over dimensions is
/// compiled once.
template <int kOperands, int kPositions>
__device__ __forceinline__ void offsets_at(const StridedIndexer<kOperands, uint32_t>& offsets,
                                           uint32_t (&position)[kPositions], uint32_t (&at)[kOperands][kPositions]) {
#pragma unroll
  for (int k = 0; k < kOperands; ++k)
    for (int j = 0; j < kPositions; ++j) at[k][j] = 0;
#pragma unroll 1
  for (int d = 0; d + 1 < offsets.rank; ++d) {
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      const uint32_t next = offsets.sizes[d](position[j]);
      const uint32_t index = position[j] - next * offsets.sizes[d].divisor;
#pragma unroll
      for (int k = 0; k < kOperands; ++k) at[k][j] += index * offsets.strides[k][d];
      position[j] = next;
    }
  }
#pragma unroll
  for (int j = 0; j < kPositions; ++j)
    for (int k = 0; k < kOperands; ++k) at[k][j] += position[j] * offsets.strides[k][offsets.rank - 1];
}

/// Accesses every operand once. A thread computes groups of kLanes neighbours, a block's width apart, with all loads
/// before the first store. If groups are not possible, it computes as many single elements, a block's width apart, four
/// at a time, so that a warp's accesses stay adjacent.
// Long: its operands stay in registers from loads that are in flight together to the stores.
template <class Formula, int kArity, class C>
static __global__ void __launch_bounds__(kPointwiseBlock) strided(const __grid_constant__ StridedCall<kArity, C> call) {
  lorry::cuda::begin_programmatic();
  constexpr uint32_t kLength = kLanes<C>, kGroups = strided_groups(kArity);
  const uint32_t base = blockIdx.x * kStridedTile<kArity, C>;
  const bool rounded = is_narrow(call.out.dtype);
  uint32_t i = base + threadIdx.x, step = kPointwiseBlock, end = min(call.n, base + kStridedTile<kArity, C>);
  if (call.vectors) {
    Raw raw[kGroups][kArity];
    uint32_t positions[kGroups], at[1 + kArity][kGroups];
#pragma unroll
    for (uint32_t u = 0; u < kGroups; ++u) positions[u] = base + (u * kPointwiseBlock + threadIdx.x) * kLength;
    offsets_at(call.offsets, positions, at);
#pragma unroll
    for (uint32_t u = 0; u < kGroups; ++u) {
      const uint32_t position = base + (u * kPointwiseBlock + threadIdx.x) * kLength;
      if (position + kLength > call.n) continue;
#pragma unroll
      for (int k = 0; k < kArity; ++k) {
        if (call.in[k].data == nullptr) continue;
        const int size = call.in[k].size;
        const char* const from = static_cast<const char*>(call.in[k].data) + int64_t{at[1 + k][u]} * size;
        raw[u][k] = call.offsets.strides[1 + k][0] == 0 ? repeat_lanes<C>(from, size) : load_lanes<C>(from, size);
      }
    }
#pragma unroll
    for (uint32_t u = 0; u < kGroups; ++u) {
      const uint32_t position = base + (u * kPointwiseBlock + threadIdx.x) * kLength;
      if (position + kLength > call.n) continue;
      Lanes<C> x[kArity], result;
#pragma unroll
      for (int k = 0; k < kArity; ++k) {
        if (call.in[k].data != nullptr) {
          x[k] = widen<C>(raw[u][k], call.in[k].dtype);
        } else {
#pragma unroll
          for (uint32_t lane = 0; lane < kLength; ++lane) x[k].at[lane] = call.numbers[k];
        }
      }
#pragma unroll
      for (uint32_t lane = 0; lane < kLength; ++lane) {
        C values[kArity];
#pragma unroll
        for (int k = 0; k < kArity; ++k) values[k] = x[k].at[lane];
        result.at[lane] = compute<Formula>(values, rounded);
      }
      const int size = call.out.size;
      store_lanes<C>(static_cast<char*>(call.out.data) + int64_t{at[0][u]} * size, size,
                     narrow<C>(result, call.out.dtype));
    }
    // The rest of a single run of odd length.
    if (blockIdx.x + 1 != gridDim.x || threadIdx.x != 0) return;
    i = call.n - call.n % kLength, step = 1, end = call.n;
  }
#pragma unroll 1
  for (; i < end; i += 4 * step) {
    uint32_t positions[4], at[1 + kArity][4];
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) positions[j] = min(i + j * step, end - 1);
    offsets_at(call.offsets, positions, at);
    Four<C> x[kArity], result;
#pragma unroll
    for (int k = 0; k < kArity; ++k) {
      if (call.in[k].data != nullptr) {
        x[k] = gather<C>(call.in[k], at[1 + k]);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) x[k].at[j] = call.numbers[k];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      C values[kArity];
#pragma unroll
      for (int k = 0; k < kArity; ++k) values[k] = x[k].at[j];
      result.at[j] = compute<Formula>(values, rounded);
    }
    const uint32_t count = min((end - i + step - 1) / step, 4u);
    scatter<C>(call.out, at[0], result, static_cast<int>(count));
  }
}

}  // namespace lorry::kernels::cuda
