#pragma once

// Pointwise kernels over lists, for one formula each. They combine the tiles of list.h with the arithmetic of
// pointwise_kernels.h, so results have the bits of the kernels for one tensor. Every array is read or written once; raw
// words are loaded first and converted afterwards. A thread has 32 bytes of every f32 operand in flight, 64 of a single
// one.

#include "lorry/kernels/cuda/list/foreach.h"
#include "lorry/kernels/cuda/pointwise/pointwise_kernels.h"

namespace lorry::kernels::cuda {

/// The words of a run in stored form, packed from the first on.
template <class C>
struct RunWords {
  static constexpr int kParts = kForeachRun<C> / kLanes<C>;
  uint32_t words[4 * kParts];

  __device__ __forceinline__ void load(const void* from, int size) {
    if constexpr (kParts == 1) {
      set(0, load_lanes<C>(from, size));
    } else {
      const auto* const at = static_cast<const uint4*>(from);
      switch (size) {
        case 4: {
          const uint4 low = at[0], high = at[1];
          set(0, {low.x, low.y, low.z, low.w}), set(4, {high.x, high.y, high.z, high.w});
          return;
        }
        case 2: {
          const uint4 low = at[0];
          return set(0, {low.x, low.y, low.z, low.w});
        }
        default: {
          const uint2 low = *static_cast<const uint2*>(from);
          words[0] = low.x, words[1] = low.y;
        }
      }
    }
  }
  __device__ __forceinline__ void store(void* to, int size) const {
    if constexpr (kParts == 1) {
      store_lanes<C>(to, size, part(0, size));
    } else {
      auto* const at = static_cast<uint4*>(to);
      switch (size) {
        case 4:
          at[0] = make_uint4(words[0], words[1], words[2], words[3]),
          at[1] = make_uint4(words[4], words[5], words[6], words[7]);
          return;
        case 2:
          at[0] = make_uint4(words[0], words[1], words[2], words[3]);
          return;
        default:
          *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
      }
    }
  }
  /// kLanes elements of the run.
  __device__ __forceinline__ Raw part(int p, int size) const {
    if (p == 0) return {words[0], words[1], words[2], words[3]};
    if constexpr (kParts > 1) {
      if (size == 4) return {words[4], words[5], words[6], words[7]};
      if (size == 2) return {words[2], words[3]};
    }
    return {words[1]};
  }
  __device__ __forceinline__ void put(int p, int size, const Raw& raw) {
    if (p == 0) return set(0, raw);
    if constexpr (kParts > 1) {
      if (size == 4) return set(4, raw);
      if (size == 2) {
        words[2] = raw.words[0], words[3] = raw.words[1];
        return;
      }
    }
    words[1] = raw.words[0];
  }

 private:
  __device__ __forceinline__ void set(int first, const Raw& raw) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[first + i] = raw.words[i];
  }
};

/// Processes a warp's tile: the runs in one pass, then the elements before and after them, four at a time.
// Long: its operands stay in registers from loads that are in flight together to the stores.
template <class Formula, int kArity, class C>
__device__ __forceinline__ void foreach_tile(const Entry<1 + kArity>& entry, const Tile& tile,
                                             const ListPointwise<kArity, C>& call, int lane) {
  constexpr int kRunLength = kForeachRun<C>, kParts = RunWords<C>::kParts,
                kFlight = (kArity == 1 ? 2 : 1) * (sizeof(C) == 8 ? 2 : 1);
  const bool rounded = is_narrow(call.dtypes[0]);
  StridedOperand at[1 + kArity];
  C uniforms[kArity];
#pragma unroll
  for (int k = 0; k <= kArity; ++k) {
    at[k].dtype = call.dtypes[k], at[k].size = call.sizes[k];
    if (k == 0 || (call.arrays >> (k - 1) & 1) != 0) {
      at[k].data = static_cast<char*>(entry.at[k]) + tile.first * at[k].size;
    } else {
      const Uniform<C>& x = call.uniforms[k - 1];
      uniforms[k - 1] = x.values == nullptr ? x.number : load_any<C>(x.values, x.dtype, x.step * entry.word);
    }
  }
  const auto is_array = [&](int k) { return (call.arrays >> k & 1) != 0; };
  const int first_run = call.vectors ? tile.runs : tile.count, rest = call.vectors ? tile.rest : tile.count;

#pragma unroll 1
  for (int i = first_run + lane * kRunLength; i < rest; i += kFlight * 32 * kRunLength) {
    RunWords<C> words[kFlight][kArity];
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const int here = i + u * 32 * kRunLength;
      if (here >= rest) continue;
#pragma unroll
      for (int k = 0; k < kArity; ++k)
        if (is_array(k))
          words[u][k].load(static_cast<const char*>(at[1 + k].data) + here * at[1 + k].size, at[1 + k].size);
    }
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const int here = i + u * 32 * kRunLength;
      if (here >= rest) continue;
      RunWords<C> out;
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        Lanes<C> x[kArity], result;
#pragma unroll
        for (int k = 0; k < kArity; ++k) {
          if (is_array(k)) {
            x[k] = widen<C>(words[u][k].part(p, at[1 + k].size), at[1 + k].dtype);
          } else {
#pragma unroll
            for (int l = 0; l < kLanes<C>; ++l) x[k].at[l] = uniforms[k];
          }
        }
#pragma unroll
        for (int l = 0; l < kLanes<C>; ++l) {
          C values[kArity];
#pragma unroll
          for (int k = 0; k < kArity; ++k) values[k] = x[k].at[l];
          result.at[l] = compute<Formula>(values, rounded);
        }
        out.put(p, at[0].size, narrow<C>(result, at[0].dtype));
      }
      out.store(static_cast<char*>(at[0].data) + here * at[0].size, at[0].size);
    }
  }

#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const int end = side == 0 ? first_run : tile.count;
#pragma unroll 1
    for (int i = (side == 0 ? 0 : rest) + lane; i < end; i += 4 * 32) {
      uint32_t positions[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) positions[j] = static_cast<uint32_t>(min(i + j * 32, end - 1));
      Four<C> x[kArity], result;
#pragma unroll
      for (int k = 0; k < kArity; ++k) {
        if (is_array(k)) {
          x[k] = gather<C>(at[1 + k], positions);
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j) x[k].at[j] = uniforms[k];
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        C values[kArity];
#pragma unroll
        for (int k = 0; k < kArity; ++k) values[k] = x[k].at[j];
        result.at[j] = compute<Formula>(values, rounded);
      }
      scatter<C>(at[0], positions, result, min((end - i + 31) / 32, 4));
    }
  }
}

template <class Formula, int kArity, class C, class Source>
static __global__ void __launch_bounds__(kListThreads)
    foreach_tiles(const __grid_constant__ ListPointwise<kArity, C> call, const Ending,
                  const __grid_constant__ Source source) {
  lorry::cuda::begin_programmatic();
  const uint32_t tile = blockIdx.x * kListWarps + threadIdx.x / 32;
  if (tile >= source.tiles) return;
  if (call.unless_nan != nullptr && *call.unless_nan != *call.unless_nan) return;
  const uint32_t at = source.first_tile + tile;
  const Entry<1 + kArity>& entry = source.find(at);
  foreach_tile<Formula>(entry,
                        tile_at(at - entry.first_tile, call.tile, kForeachRun<C>, 32 * kForeachRun<C>,
                                static_cast<int64_t>(entry.count), static_cast<uint8_t>(entry.head)),
                        call, static_cast<int>(threadIdx.x % 32));
}

template <class Formula, int kArity, class C>
ForeachRowKernels foreach_kernels_of() {
  return {.arguments_4k = reinterpret_cast<const void*>(&foreach_tiles<Formula, kArity, C, Arguments4K<1 + kArity>>),
          .arguments_32k = reinterpret_cast<const void*>(&foreach_tiles<Formula, kArity, C, Arguments32K<1 + kArity>>),
          .table = reinterpret_cast<const void*>(&foreach_tiles<Formula, kArity, C, Table<1 + kArity>>)};
}

}  // namespace lorry::kernels::cuda
