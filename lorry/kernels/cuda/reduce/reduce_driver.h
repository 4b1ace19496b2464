#pragma once

// The driver of all reductions: three kernels, and a plan that depends only on shapes and constants. So the order of
// combination does not depend on the device or on the alignment of a tensor.
//
//   rows      the reduced elements of an output are in contiguous runs: 1 to 1024 lanes per output, 16 bytes per lane
//             and load
//   columns   neighbouring outputs are neighbours in memory: each thread accumulates a few of them over the reduced
//   rows general   any strides and any dtype, element by element
//
// If there are few outputs with many elements, each output is split among several blocks. They store partial cells, and
// the last block of an output to finish combines them: one launch per reduction. The result does not depend on which
// block that is, because cells are combined in a fixed order. Every element is read once: the bytes moved are those of
// x. A policy P defines the reduction:
//   T, C              the stored type and the compute type (rows and columns)
//   Acc, Cell         a thread's accumulator; the partial result that threads exchange, trivially copyable
//   identity(), combine(into, from), finish(offset, cell)   of cells; defined by a base, End, common to all dtypes
//   kColumns          elements per load of the columns kernel
//   kDeep             loads in flight of its loop over rows with one common stride; 0: there is no such loop
//   unmapped(), stored(t)   only with kDeep: whether value(t) equals stored(t), so that no branches are needed
//   start(), cell(acc)      a new accumulator; its cell
//   value(t)          the value of a stored element, with the map applied
//   take(acc, v[N], position, step)   accumulates N values, v[i] at `position + i * step` of the reduced range
// And for the general kernel, values(x, index, v): the values at these indices of x, whose dtype is known at run time,
// or is P::Element.

#include <algorithm>
#include <bit>

#include "lorry/base/integers.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/common/fold.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/common/wide_indexer.h"
#include "lorry/kernels/cuda/reduce/reduce_parts.h"

namespace lorry::kernels::cuda {

inline constexpr int kUnroll = 4;  // loads in flight per thread

// ---- elements -------------------------------------------------------------------------------------------------------

/// Loads the elements of `dtype` at these indices. There is one branch for all of them, so the loads are in flight
/// together.
template <class C>
__device__ __forceinline__ void load_several(const void* x, DType dtype, const int64_t (&index)[kUnroll],
                                             C (&v)[kUnroll]) {
  visit(dtype, [&]<class T>(Type<T>) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = cast<C, T>(static_cast<const Stored<T>*>(x)[index[u]]);
  });
}

/// Loads 16 bytes, as words: a register has four elements of a byte, where an array of bytes would have one.
template <class T>
__device__ __forceinline__ Run<uint32_t, 4> load_words(const T* from, bool aligned) {
  if (aligned) return load_run<uint32_t, 4>(reinterpret_cast<const uint32_t*>(from));
  if constexpr (sizeof(T) >= 4) {
    Run<T, kRun<T>> run;
#pragma unroll
    for (int i = 0; i < kRun<T>; ++i) run.at[i] = from[i];
    return std::bit_cast<Run<uint32_t, 4>>(run);
  } else {
    constexpr int kEach = 4 / static_cast<int>(sizeof(T)), kBits = 8 * static_cast<int>(sizeof(T));
    Run<uint32_t, 4> words = {};
#pragma unroll
    for (int i = 0; i < kRun<T>; ++i)
      words.at[i / kEach] |= static_cast<uint32_t>(std::bit_cast<BitsOf<T>>(from[i])) << i % kEach * kBits;
    return words;
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

struct ReducePlan {
  int64_t outputs, runs, length;  // a row has `runs` runs of `length` contiguous elements
  int64_t run_chunk, chunk;       // a block processes `run_chunk` runs, `chunk` elements of each
  int32_t run_parts, parts;       // number of blocks: grid.z and grid.y
  int32_t lane_bits, run_bits;    // 2^lane_bits threads per row, 2^run_bits of them per run
  WideIndexer<2> output_dims;
  WideIndexer<1> reduced;
  int threads;

  void addresses(auto& visit) const { visit(); }
};

/// Accumulates a run: lane l of `lanes` has the 16-byte groups l, l + lanes, ... for any alignment. Groups that
/// straddle 16-byte boundaries are loaded element by element (and found in the first-level cache). kUnmapped: elements
/// are used as stored, without the map.
template <bool kUnmapped, class P>
__device__ __forceinline__ void take_run(const P& policy, typename P::Acc& acc, const typename P::T* from, int n,
                                         int lane, int lanes, int64_t position) {
  using T = typename P::T;
  constexpr int kV = kRun<T>;
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const auto value = [&](T element) {
    if constexpr (kUnmapped)
      return policy.stored(element);
    else
      return policy.value(element);
  };
  const auto take = [&](const T* group, int at) {
    typename P::C v[kV];
#pragma unroll
    for (int i = 0; i < kV; ++i) v[i] = value(group[i]);
    policy.take(acc, v, position + at, int64_t{1});
  };
  const int step = lanes * kV;
  for (int at = lane * kV; at < n; at += kUnroll * step) {
    Run<uint32_t, 4> groups[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (at + u * step + kV <= n) groups[u] = load_words(from + at + u * step, aligned);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (at + u * step + kV <= n) take(std::bit_cast<Run<T, kV>>(groups[u]).at, at + u * step);
  }
  const int rest = n / kV * kV;
  if (rest < n && ((rest / kV) & (lanes - 1)) == lane) {
    for (int at = rest; at < n; ++at) {
      const typename P::C v[1] = {value(from[at])};
      policy.take(acc, v, position + at, int64_t{1});
    }
  }
}

template <class P>
__global__ void __launch_bounds__(1024)
    reduce_rows(const P policy, const typename P::T* x, const ReducePlan plan, const Parts<typename P::Cell> parts) {
  lorry::cuda::begin_programmatic();
  const int lanes = 1 << plan.lane_bits, run_lanes = 1 << plan.run_bits,
            lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) >> plan.lane_bits;
  typename P::Acc acc = policy.start();
  int64_t at[2] = {};
  if (row < plan.outputs) {
    plan.output_dims(row, at);
    const int64_t begin = blockIdx.y * plan.chunk, last = min(plan.runs, (blockIdx.z + 1) * plan.run_chunk);
    const int n = static_cast<int>(min(plan.chunk, plan.length - begin));
    for (int64_t run = blockIdx.z * plan.run_chunk + (lane >> plan.run_bits); run < last;
         run += lanes >> plan.run_bits) {
      int64_t offset[1];
      plan.reduced(run, offset);
      const auto take = [&]<bool kUnmapped>() {
        take_run<kUnmapped>(policy, acc, x + at[0] + offset[0] + begin, n, lane & (run_lanes - 1), run_lanes,
                            run * plan.length + begin);
      };
      if constexpr (P::kDeep > 0)
        policy.unmapped() ? take.template operator()<true>() : take.template operator()<false>();
      else
        take.template operator()<false>();
    }
  }
  const typename P::Cell cell = combine_lanes(policy, policy.cell(acc), lanes);
  if (lane == 0 && row < plan.outputs) leave(policy, parts, plan.outputs, row, at[1], cell);
  const int rows = static_cast<int>(blockDim.x) >> plan.lane_bits;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows;
  combine_parts(policy, parts, plan.outputs, first, static_cast<int>(min(int64_t{rows}, plan.outputs - first)),
                [&](int64_t output) {
                  plan.output_dims(output, at);
                  return at[1];
                });
}

// ---- columns --------------------------------------------------------------------------------------------------------

struct ColumnPlan {
  int64_t outputs, columns, count, chunk, out_step;  // a block processes `chunk` of `count` rows
  int32_t tiles, across, down;  // tiles of columns; threads of a warp along a row; warps along the rows
  bool aligned;                 // every group of columns is aligned
  bool stepped;                 // also, rows have one common stride, and a block has fewer than 2^31
  bool once;                    // the data do not stay in a cache until they are read again
  WideIndexer<2> output_dims;   // without the dimension of the columns
  WideIndexer<1, false> reduced;
  int threads;

  void addresses(auto& visit) const { visit(); }
};
// With 64 registers per thread, eight wide sums and eight loads of 16-bit elements spill, and loads wait for each
// other. Two blocks per multiprocessor are enough, and give fewer parts to combine than three.
inline constexpr int kColumnThreads = 256, kColumnBlocksEach = 2;

// Long: one kernel, whose sums stay in registers through every way of reading rows.
template <class P>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocksEach)
    reduce_columns(const P policy, const typename P::T* x, const ColumnPlan plan, const Parts<typename P::Cell> parts) {
  lorry::cuda::begin_programmatic();
  using T = typename P::T;
  using Cell = typename P::Cell;
  constexpr int kV = P::kColumns;
  extern __shared__ __align__(16) unsigned char column_cells[];
  Cell* const cells = reinterpret_cast<Cell*>(column_cells);  // [plan.down][width]

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warps_across = static_cast<int>(blockDim.x) / 32 / plan.down, width = warps_across * plan.across * kV;
  const int column = (warp % warps_across * plan.across + lane % plan.across) * kV, warp_down = warp / warps_across;
  const int rows_down = 32 / plan.across * plan.down, row_down = warp_down * (32 / plan.across) + lane / plan.across;
  const unsigned outer = blockIdx.x / static_cast<unsigned>(plan.tiles),
                 tile = blockIdx.x % static_cast<unsigned>(plan.tiles);
  const int64_t first = static_cast<int64_t>(tile) * width;
  const int valid = static_cast<int>(max(int64_t{0}, min(int64_t{kV}, plan.columns - first - column)));
  int64_t at[2];
  plan.output_dims(outer, at);
  const T* const base = x + at[0] + first + column;

  typename P::Acc acc[kV];
#pragma unroll
  for (int i = 0; i < kV; ++i) acc[i] = policy.start();
  const int64_t end = min(plan.count, (blockIdx.y + int64_t{1}) * plan.chunk);
  int64_t row = blockIdx.y * plan.chunk + row_down;
  if constexpr (P::kDeep > 0) {
    // 16-bit elements allow few instructions each: no offset computations, no branches, and wide sums only once per
    // kDeep elements.
    static_assert(kV == kRun<T>);
    const auto sum_rows = [&]<bool kOnce>() {
      const int64_t step = rows_down * plan.reduced.strides[0][0];
      const T* from = base + row * plan.reduced.strides[0][0];
      int left = static_cast<int>(end - row);
#pragma unroll 1
      for (; left > (P::kDeep - 1) * rows_down; left -= P::kDeep * rows_down, from += P::kDeep * step) {
        Run<T, kV> runs[P::kDeep];
#pragma unroll
        for (int u = 0; u < P::kDeep; ++u)
          runs[u] = kOnce ? load_once(from + u * step) : load_run<T, kV>(from + u * step);
        if constexpr (kHalf<T>) {  // one instruction each to widen; a single element would take two
#pragma unroll
          for (int i = 0; i < kV; i += 2) {
            typename P::C low[P::kDeep], high[P::kDeep];
#pragma unroll
            for (int u = 0; u < P::kDeep; ++u) {
              const float2 both = widen_pair<T>(std::bit_cast<Run<uint32_t, kV / 2>>(runs[u]).at[i / 2]);
              low[u] = both.x, high[u] = both.y;
            }
            policy.take(acc[i], low, end - left, int64_t{rows_down});
            policy.take(acc[i + 1], high, end - left, int64_t{rows_down});
          }
        } else {
#pragma unroll
          for (int i = 0; i < kV; ++i) {
            typename P::C v[P::kDeep];
#pragma unroll
            for (int u = 0; u < P::kDeep; ++u) v[u] = policy.stored(runs[u].at[i]);
            policy.take(acc[i], v, end - left, int64_t{rows_down});
          }
        }
      }
      row = end - left;
    };
    if (plan.stepped && valid == kV && policy.unmapped()) {
      plan.once ? sum_rows.template operator()<true>() : sum_rows.template operator()<false>();
    }
  }
#pragma unroll 1
  for (; row < end && valid > 0; row += kUnroll * rows_down) {
    Run<T, kV> runs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (row + u * rows_down >= end) continue;
      int64_t offset[1];
      plan.reduced(row + u * rows_down, offset);
      if (plan.aligned && valid == kV) {
        runs[u] = load_run<T, kV>(base + offset[0]);
      } else {
#pragma unroll
        for (int i = 0; i < kV; ++i)
          if (i < valid) runs[u].at[i] = base[offset[0] + i];
      }
    }
    if (row + (kUnroll - 1) * rows_down < end) {
#pragma unroll
      for (int i = 0; i < kV; ++i) {
        typename P::C v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) v[u] = policy.value(runs[u].at[i]);
        policy.take(acc[i], v, row, int64_t{rows_down});
      }
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (row + u * rows_down >= end) continue;
#pragma unroll
        for (int i = 0; i < kV; ++i) {
          const typename P::C v[1] = {policy.value(runs[u].at[i])};
          policy.take(acc[i], v, row + u * rows_down, int64_t{1});
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kV; ++i) {
    Cell cell = policy.cell(acc[i]);
    for (int offset = plan.across; offset < 32; offset *= 2) policy.combine(cell, shuffle_down(cell, offset));
    if (lane < plan.across) cells[warp_down * width + column + i] = cell;
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < width && first + c < plan.columns;
       c += static_cast<int>(blockDim.x)) {
    Cell cell = cells[c];
    for (int w = 1; w < plan.down; ++w) policy.combine(cell, cells[w * width + c]);
    leave(policy, parts, plan.outputs, outer * plan.columns + first + c, at[1] + (first + c) * plan.out_step, cell);
  }
  const int64_t row_of_outputs = outer * plan.columns;
  combine_parts(policy, parts, plan.outputs, row_of_outputs + first,
                static_cast<int>(min(int64_t{width}, plan.columns - first)),
                [&](int64_t output) { return at[1] + (output - row_of_outputs) * plan.out_step; });
}

// ---- general --------------------------------------------------------------------------------------------------------

struct SpreadPlan {
  int64_t outputs, count, chunk;
  int32_t lanes;
  bool outputs_first;  // neighbouring threads have neighbouring outputs; otherwise neighbouring elements of one output
  WideIndexer<2> output_dims;
  WideIndexer<1> reduced;

  void addresses(auto& visit) const { visit(); }
};

/// Whether the policy knows the elements' type.
template <class P>
inline constexpr bool kTyped = requires {
  typename P::Element;
};

/// Accumulates elements with one common stride, with four times as many loads in flight, in the same groups. Returns
/// the position of the first element that is left.
template <class P>
__device__ __forceinline__ int64_t take_groups(const P& policy, typename P::Acc& acc, const void* x,
                                               const SpreadPlan& plan, int64_t origin, int64_t position, int64_t end) {
  constexpr int kGroups = 4;
  const int64_t group = kUnroll * plan.lanes, step = plan.reduced.strides[0][0];
  for (; position + kGroups * group - plan.lanes < end; position += kGroups * group) {
    typename P::C v[kGroups][kUnroll];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      int64_t from[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) from[u] = origin + (position + g * group + u * plan.lanes) * step;
      policy.values(x, from, v[g]);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) policy.take(acc, v[g], position + g * group, int64_t{plan.lanes});
  }
  return position;
}

template <class P>
__global__ void __launch_bounds__(kSpread)
    reduce_general(const P policy, const void* x, const SpreadPlan plan, const Parts<typename P::Cell> parts) {
  lorry::cuda::begin_programmatic();
  const int t = static_cast<int>(threadIdx.x), slots = kSpread / plan.lanes;
  const int lane = plan.outputs_first ? t / slots : t & (plan.lanes - 1),
            slot = plan.outputs_first ? t & (slots - 1) : t / plan.lanes;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * slots + slot;
  typename P::Acc acc = policy.start();
  int64_t at[2] = {};
  if (output < plan.outputs) {
    plan.output_dims(output, at);
    const int64_t end = min(plan.count, (blockIdx.y + int64_t{1}) * plan.chunk);
    int64_t position = blockIdx.y * plan.chunk + lane;
    if constexpr (kTyped<P>)
      if (plan.reduced.rank == 1) position = take_groups(policy, acc, x, plan, at[0], position, end);
    for (; position < end; position += kUnroll * plan.lanes) {
      int64_t from[kUnroll] = {};
      typename P::C v[kUnroll];
      // Beyond the end, the first element is loaded again and ignored.
      const auto place = [&](int u) { return position + (position + u * plan.lanes < end ? u * plan.lanes : 0); };
      if (plan.reduced.rank == 1) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) from[u] = at[0] + place(u) * plan.reduced.strides[0][0];
      } else {
#pragma unroll 1  // the divisions are long
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
          for (int i = 0; i + 1 < kUnroll; ++i) from[i] = from[i + 1];
          int64_t offset[1];
          plan.reduced(place(u), offset);
          from[kUnroll - 1] = at[0] + offset[0];
        }
      }
      policy.values(x, from, v);
      if (position + (kUnroll - 1) * plan.lanes < end) {
        policy.take(acc, v, position, int64_t{plan.lanes});
        continue;
      }
#pragma unroll 1
      for (int u = 0; position + u * plan.lanes < end; ++u) {
        const typename P::C one[1] = {v[0]};
        policy.take(acc, one, position + u * plan.lanes, int64_t{1});
#pragma unroll
        for (int i = 0; i + 1 < kUnroll; ++i) v[i] = v[i + 1];
      }
    }
  }
  const typename P::Cell cell = combine_spread(policy, policy.cell(acc), lane, slot, plan.lanes, slots);
  if (lane == 0 && output < plan.outputs) leave(policy, parts, plan.outputs, output, at[1], cell);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * slots;
  combine_parts(policy, parts, plan.outputs, first, static_cast<int>(min(int64_t{slots}, plan.outputs - first)),
                [&](int64_t other) {
                  plan.output_dims(other, at);
                  return at[1];
                });
}

// ---- plans ----------------------------------------------------------------------------------------------------------

// Constants tuned on an H200 (132 multiprocessors). They are constants, so that all devices combine in the same order.
inline constexpr int64_t kThreads = 1 << 19;       // with more threads than this, more lanes per output do not pay
inline constexpr int64_t kFewBlocks = 528;         // with fewer blocks than this, outputs are split ...
inline constexpr int64_t kBlocks = 1056;           // ... into about so many blocks,
inline constexpr int64_t kSplitBytes = 256 << 10;  // if a block would read more than this,
inline constexpr int64_t kPartBytes = 64 << 10;    // ... into parts of at least this size
inline constexpr int64_t kColumnBlocks = 132 * kColumnBlocksEach;  // for the columns kernel: as many as run at once,
inline constexpr int64_t kColumnPartBytes = 32 << 10;              // and at least one turn of the loop per block
// bytes; of this much, a large part is still in the second-level cache when read again
inline constexpr int64_t kCached = 64 << 20;
inline constexpr int64_t kLongest = 1 << 30;  // elements of a run that a block can count in 32 bits

constexpr int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
constexpr int64_t power_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
constexpr int32_t bits_of(int64_t power) { return std::countr_zero(static_cast<uint64_t>(power)); }

/// The number of parts into which a block's work of `bytes` is split if there are `blocks` blocks.
constexpr int64_t parts_for(int64_t blocks, int64_t bytes) {
  if (blocks >= kFewBlocks || bytes < kSplitBytes) return 1;
  return std::min(ceil_div(kBlocks, blocks), bytes / kPartBytes);
}

/// The types with rows and columns kernels.
constexpr bool has_rows(DType t) { return is_floating(t) || t == kI64; }
template <class F>
void visit_rows(DType t, F&& f) {
  visit(t, [&]<class T>(Type<T> type) {
    if constexpr (kFloatingType<T> || std::is_same_v<T, int64_t>)
      f(type);
    else
      raise<DTypeError>("a dtype without row kernels; got {}; expected a floating dtype or i64", t);
  });
}

enum class Route { rows, columns, general };

/// The kernel for these axes, if x has a type with rows and columns kernels.
inline Route route(const Axes& axes) {
  const Iteration &output_dims = axes.output_dims, &reduced = axes.reduced;
  if (axes.count == 0) return Route::general;
  if (axes.count > 1 && reduced.strides[0][0] == 1 && (reduced.rank == 1 || reduced.sizes[0] >= 4)) return Route::rows;
  const bool countable = reduced.rank == 1 || axes.count <= INT32_MAX;
  if (countable && output_dims.strides[0][0] == 1 && output_dims.sizes[0] >= (output_dims.rank == 1 ? 2 : 8))
    return Route::columns;
  return Route::general;
}

inline ReducePlan plan_rows(const Axes& axes, int64_t element) {
  const int64_t group = 16 / element, length = axes.reduced.sizes[0], runs = axes.count / length;
  int64_t lanes = std::min(power_above(ceil_div(axes.count, 2 * group)),
                           std::max<int64_t>(32, power_below(kThreads / axes.outputs)));
  lanes = std::min<int64_t>(lanes, 1024);
  const int64_t parts = parts_for(axes.outputs, axes.count * element);
  if (parts > 1 || length > kLongest) lanes = kSpread;
  const int64_t run_chunk = ceil_div(runs, std::min(runs, parts)), run_parts = ceil_div(runs, run_chunk);
  int64_t chunk = ceil_div(length, std::max<int64_t>(1, parts / run_parts));
  chunk = std::min(kLongest, ceil_div(chunk, lanes * group) * lanes * group);
  return {.outputs = axes.outputs,
          .runs = runs,
          .length = length,
          .run_chunk = run_chunk,
          .chunk = chunk,
          .run_parts = static_cast<int32_t>(run_parts),
          .parts = static_cast<int32_t>(ceil_div(length, chunk)),
          .lane_bits = bits_of(lanes),
          .run_bits = bits_of(std::min(lanes, power_above(ceil_div(std::min(length, chunk), group)))),
          .output_dims = WideIndexer<2>(axes.output_dims),
          .reduced = WideIndexer<1>(axes.reduced, 1),
          .threads = static_cast<int>(std::max<int64_t>(256, lanes))};
}

inline ColumnPlan plan_columns(const Axes& axes, const void* x, int64_t element, int group, int64_t unroll) {
  const int64_t columns = axes.output_dims.sizes[0], outer = axes.outputs / columns, groups = ceil_div(columns, group);
  int64_t across = std::min<int64_t>(32, power_above(groups));
  while (across > 8 && outer * ceil_div(groups, across) < kFewBlocks / 2) across /= 2;
  constexpr int64_t kWarps = kColumnThreads / 32;
  const int64_t down = std::min(kWarps, power_above(ceil_div(axes.count, kUnroll * (32 / across))));
  const int64_t warps_across = std::min(kWarps / down, power_above(ceil_div(groups, across)));
  const int64_t width = warps_across * across * group, tiles = ceil_div(columns, width),
                rows = unroll * (32 / across) * down;
  // A part is a whole number of turns of the loop.
  const int64_t most = std::max<int64_t>(1, axes.count * std::min(columns, width) * element / kColumnPartBytes);
  const int64_t parts = std::clamp<int64_t>(kColumnBlocks / (outer * tiles), 1, most),
                turns = ceil_div(ceil_div(axes.count, parts), rows);
  bool aligned = reinterpret_cast<uintptr_t>(x) % (group * element) == 0;
  for (int d = 1; d < axes.output_dims.rank; ++d) aligned = aligned && axes.output_dims.strides[0][d] % group == 0;
  for (int d = 0; d < axes.reduced.rank && axes.count > 1; ++d)
    aligned = aligned && axes.reduced.strides[0][d] % group == 0;
  return {.outputs = axes.outputs,
          .columns = columns,
          .count = axes.count,
          .chunk = turns * rows,
          .out_step = axes.output_dims.strides[1][0],
          .tiles = static_cast<int32_t>(tiles),
          .across = static_cast<int32_t>(across),
          .down = static_cast<int32_t>(down),
          .aligned = aligned,
          .stepped = aligned && axes.reduced.rank == 1 && turns * rows <= INT32_MAX,
          .once = axes.count * axes.outputs * element > kCached,
          .output_dims = WideIndexer<2>(axes.output_dims, 1),
          .reduced = WideIndexer<1, false>(axes.reduced),
          .threads = static_cast<int>(warps_across * down * 32)};
}

inline SpreadPlan plan_general(const Axes& axes, int64_t element) {
  const bool outputs_first =
      axes.outputs > 1 && (axes.count <= 1 || axes.output_dims.strides[0][0] < axes.reduced.strides[0][0]);
  const int64_t enough = std::max<int64_t>(outputs_first ? 1 : 32, power_below(kThreads / axes.outputs));
  const int64_t lanes =
      std::min({power_above(ceil_div(axes.count, 2 * kUnroll)), enough, int64_t{outputs_first ? 64 : kSpread}});
  // A non-contiguous element costs as much as eight bytes or more.
  const int64_t slots = kSpread / lanes,
                parts = parts_for(ceil_div(axes.outputs, slots), axes.count * slots * std::max<int64_t>(element, 8));
  const int64_t chunk = std::max<int64_t>(1, ceil_div(axes.count, parts));
  return {.outputs = axes.outputs,
          .count = axes.count,
          .chunk = chunk,
          .lanes = static_cast<int32_t>(lanes),
          .outputs_first = outputs_first,
          .output_dims = WideIndexer<2>(axes.output_dims),
          .reduced = axes.count > 0 ? WideIndexer<1>(axes.reduced) : WideIndexer<1>(axes.reduced, axes.reduced.rank)};
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// Launches the kernel, with memory for partial cells if the grid has blocks in y or z.
template <class P, class X, class Plan>
void launch_parts(void (*kernel)(P, X, Plan, Parts<typename P::Cell>), const lorry::cuda::Shape& shape, const P& policy,
                  X x, const Plan& plan, Stream stream) {
  using Cell = typename P::Cell;
  const int64_t count = int64_t{shape.grid.y} * shape.grid.z;
  if (count == 1) return lorry::cuda::launch(stream, shape, kernel, policy, x, plan, Parts<Cell>{nullptr, nullptr, 1});
  const Scratch cells(count * plan.outputs * static_cast<int64_t>(sizeof(Cell)), stream);
  const Tickets tickets(shape.grid.x, stream);
  lorry::cuda::launch(stream, shape, kernel, policy, x, plan,
                      Parts<Cell>{cells.as<Cell>(), tickets.data(), static_cast<int32_t>(count)});
}

/// Runs by rows or by columns, according to `way`.
template <class P>
void reduce(const P& policy, const Axes& axes, Route way, const void* x, Stream stream) {
  using T = typename P::T;
  const auto* from = static_cast<const T*>(x);
  if (way == Route::rows) {
    const ReducePlan plan = plan_rows(axes, sizeof(T));
    const dim3 grid(static_cast<unsigned>(ceil_div(axes.outputs, plan.threads >> plan.lane_bits)),
                    static_cast<unsigned>(plan.parts), static_cast<unsigned>(plan.run_parts));
    launch_parts(reduce_rows<P>, {grid, static_cast<unsigned>(plan.threads)}, policy, from, plan, stream);
  } else {
    const ColumnPlan plan = plan_columns(axes, x, sizeof(T), P::kColumns, std::max(kUnroll, P::kDeep));
    const unsigned parts = static_cast<unsigned>(ceil_div(plan.count, plan.chunk));
    const unsigned grid = static_cast<unsigned>(axes.outputs / plan.columns * plan.tiles);
    const size_t shared = static_cast<size_t>(plan.threads / 32 * plan.across * P::kColumns) * sizeof(typename P::Cell);
    launch_parts(reduce_columns<P>, {{grid, parts}, static_cast<unsigned>(plan.threads), shared}, policy, from, plan,
                 stream);
  }
}

template <class P>
void reduce_any(const P& policy, const Axes& axes, const Array& x, Stream stream) {
  const SpreadPlan plan = plan_general(axes, size_of(x.dtype));
  const unsigned parts = static_cast<unsigned>(std::max<int64_t>(1, ceil_div(plan.count, plan.chunk)));
  const unsigned grid = static_cast<unsigned>(ceil_div(axes.outputs, kSpread / plan.lanes));
  launch_parts(reduce_general<P>, {{grid, parts}, kSpread}, policy, static_cast<const void*>(x.data), plan, stream);
}

}  // namespace lorry::kernels::cuda
