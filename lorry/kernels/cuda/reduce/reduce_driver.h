#pragma once

// One driver for every reduction: three kernels, and a plan that depends on shapes and constants alone, so that the
// tree in which elements are combined does too (not on the device, nor on where a tensor starts).
//
//   rows      the reduced elements of an output lie in contiguous runs: 1 to 1024 lanes an output, 16 bytes a lane and
//   load columns   neighbouring outputs are neighbours in memory: each thread carries a few of them along the reduced
//   rows general   any strides and any dtype, element by element
//
// Where few outputs have many elements, each is split among blocks that leave partial cells, and the last block of an
// output to do so adds them up: one launch a reduction. Which block that is shows in no bit, because the cells have
// their order. All of them read every element once: the bytes moved are those of x. A policy P says what is computed:
//   T, C              the stored type and the compute type (rows and columns)
//   Acc, Cell         what a thread carries, and the trivially copyable partial result that threads exchange
//   identity(), combine(into, from), finish(offset, cell)   of cells; a base, End, that all dtypes share has them
//   kColumns          elements of a load of the columns kernel
//   kDeep             loads in flight of its loop over rows that lie a stride apart; 0: it has no such loop
//   unmapped(), stored(t)             with kDeep: whether value(t) is nothing but stored(t), which costs no branches
//   start(), cell(acc)
//   value(t)          the value that enters, of a stored element
//   take(acc, v[N], position, step)   takes in N values, v[i] at `position + i * step` of the reduced range
// and for the general kernel, values(x, index, v): the values at these indices of x, whose dtype is known at run time.

#include <algorithm>
#include <bit>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/common/fold.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/common/wide_indexer.h"
#include "lorry/kernels/cuda/reduce/reduce_parts.h"

namespace lorry::kernels::cuda {

inline constexpr int kUnroll = 4;  // loads in flight a thread

// ---- elements -------------------------------------------------------------------------------------------------------

/// The elements of `dtype` at these indices. One branch for them all, so that the loads are in flight together.
template <class C>
__device__ __forceinline__ void load_several(const void* x, DType dtype, const int64_t (&index)[kUnroll],
                                             C (&v)[kUnroll]) {
  visit(dtype, [&]<class T>(Type<T>) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = cast<C, T>(static_cast<const Stored<T>*>(x)[index[u]]);
  });
}

// ---- rows -----------------------------------------------------------------------------------------------------------

struct ReducePlan {
  int64_t outputs, runs, length;  // a row is `runs` runs of `length` contiguous elements
  int64_t run_chunk, chunk;       // of which a block takes so many runs, and so much of each
  int32_t run_parts, parts;       // blocks: grid.z and grid.y
  int32_t lane_bits, run_bits;    // 2^lane_bits threads have a row, 2^run_bits of them a run
  WideIndexer<2> kept;
  WideIndexer<1> reduced;
  int threads;

  void addresses(auto& visit) const { visit(); }
};

/// Takes in a run: lane l of `lanes` has the 16-byte groups l, l + lanes, ... whatever the alignment; groups that
/// straddle 16-byte boundaries are read one by one (and found in the first-level cache). kUnmapped: elements enter as
/// they lie in memory.
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
    Run<T, kV> groups[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (at + u * step + kV > n) continue;
      const T* const group = from + at + u * step;
      if (aligned) {
        groups[u] = load_run<T, kV>(group);
      } else {
#pragma unroll
        for (int i = 0; i < kV; ++i) groups[u].at[i] = group[i];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (at + u * step + kV <= n) take(groups[u].at, at + u * step);
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
  const int lanes = 1 << plan.lane_bits, run_lanes = 1 << plan.run_bits,
            lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) >> plan.lane_bits;
  typename P::Acc acc = policy.start();
  int64_t at[2] = {};
  if (row < plan.outputs) {
    plan.kept(row, at);
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
                  plan.kept(output, at);
                  return at[1];
                });
}

// ---- columns --------------------------------------------------------------------------------------------------------

struct ColumnPlan {
  int64_t outputs, columns, count, chunk, out_step;  // a block takes `chunk` of `count` rows
  int32_t tiles, across, down;  // tiles of columns; threads of a warp along a row; warps along the rows
  bool aligned;                 // every group of columns starts at a multiple of its size
  bool stepped;                 // moreover rows are one stride apart, fewer than 2^31 a block
  bool once;                    // too many bytes to stay in a cache until they are read again
  WideIndexer<2> kept;          // without the columns
  WideIndexer<1, false> reduced;
  int threads;

  void addresses(auto& visit) const { visit(); }
};
// With 64 registers a thread, eight wide sums and eight loads of 16-bit elements spill, and loads wait for each other.
// Two blocks a multiprocessor are enough, and leave fewer parts to add up than three.
inline constexpr int kColumnThreads = 256, kColumnBlocksEach = 2;

// Long: one kernel, whose sums stay in registers through every way of reading rows.
template <class P>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocksEach)
    reduce_columns(const P policy, const typename P::T* x, const ColumnPlan plan, const Parts<typename P::Cell> parts) {
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
  plan.kept(outer, at);
  const T* const base = x + at[0] + first + column;

  typename P::Acc acc[kV];
#pragma unroll
  for (int i = 0; i < kV; ++i) acc[i] = policy.start();
  const int64_t end = min(plan.count, (blockIdx.y + int64_t{1}) * plan.chunk);
  int64_t row = blockIdx.y * plan.chunk + row_down;
  if constexpr (P::kDeep > 0) {
    // 16-bit elements leave few instructions each: no offsets to find, no branches, and wide sums once in kDeep
    // elements.
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
        if constexpr (kHalf<T>) {  // an instruction each to widen, where one element alone takes two
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
  bool outputs_first;  // neighbouring threads have neighbouring outputs, else neighbouring elements of one
  WideIndexer<2> kept;
  WideIndexer<1> reduced;

  void addresses(auto& visit) const { visit(); }
};

template <class P>
__global__ void __launch_bounds__(kSpread)
    reduce_general(const P policy, const void* x, const SpreadPlan plan, const Parts<typename P::Cell> parts) {
  const int t = static_cast<int>(threadIdx.x), slots = kSpread / plan.lanes;
  const int lane = plan.outputs_first ? t / slots : t & (plan.lanes - 1),
            slot = plan.outputs_first ? t & (slots - 1) : t / plan.lanes;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * slots + slot;
  typename P::Acc acc = policy.start();
  int64_t at[2] = {};
  if (output < plan.outputs) {
    plan.kept(output, at);
    const int64_t end = min(plan.count, (blockIdx.y + int64_t{1}) * plan.chunk);
    for (int64_t position = blockIdx.y * plan.chunk + lane; position < end; position += kUnroll * plan.lanes) {
      int64_t from[kUnroll];
      typename P::C v[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {  // past the end the first element is read again, and left out
        int64_t offset[1];
        plan.reduced(position + u * plan.lanes < end ? position + u * plan.lanes : position, offset);
        from[u] = at[0] + offset[0];
      }
      policy.values(x, from, v);
#pragma unroll 1
      for (int u = 0; u < kUnroll && position + u * plan.lanes < end; ++u) {
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
                  plan.kept(other, at);
                  return at[1];
                });
}

// ---- plans ----------------------------------------------------------------------------------------------------------

// Constants fitted to the H200 (132 multiprocessors); being constants, they give one tree on every device.
inline constexpr int64_t kThreads = 1 << 19;       // beyond so many threads, more lanes an output only cost
inline constexpr int64_t kFewBlocks = 528;         // with fewer, outputs are split ...
inline constexpr int64_t kBlocks = 1056;           // ... into about so many blocks,
inline constexpr int64_t kSplitBytes = 256 << 10;  // where a block would read more than this,
inline constexpr int64_t kPartBytes = 64 << 10;    // into parts that are worth a block.
inline constexpr int64_t kColumnBlocks = 132 * kColumnBlocksEach;  // of the columns kernel: all run at once,
inline constexpr int64_t kColumnPartBytes = 32 << 10;              // and a turn of the loop is worth a block.
inline constexpr int64_t kCached = 64 << 20;  // bytes of which much is found in the second-level cache when read again
inline constexpr int64_t kLongest = 1 << 30;  // elements of a run that a block counts in 32 bits

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
constexpr int64_t power_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
constexpr int32_t bits_of(int64_t power) { return std::countr_zero(static_cast<uint64_t>(power)); }

/// How many parts a block's work of `bytes` is split into when there are `blocks` of them.
constexpr int64_t parts_for(int64_t blocks, int64_t bytes) {
  if (blocks >= kFewBlocks || bytes < kSplitBytes) return 1;
  return std::min(ceil_div(kBlocks, blocks), bytes / kPartBytes);
}

/// The types that the rows and columns kernels are made for.
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

/// The kernel for the axes when x has a type that rows and columns are made for.
inline Route route(const Axes& axes) {
  const Iteration &kept = axes.kept, &reduced = axes.reduced;
  if (axes.count == 0) return Route::general;
  if (axes.count > 1 && reduced.strides[0][0] == 1 && (reduced.rank == 1 || reduced.sizes[0] >= 4)) return Route::rows;
  const bool countable = reduced.rank == 1 || axes.count <= INT32_MAX;
  if (countable && kept.strides[0][0] == 1 && kept.sizes[0] >= (kept.rank == 1 ? 2 : 8)) return Route::columns;
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
          .kept = WideIndexer<2>(axes.kept),
          .reduced = WideIndexer<1>(axes.reduced, 1),
          .threads = static_cast<int>(std::max<int64_t>(256, lanes))};
}

inline ColumnPlan plan_columns(const Axes& axes, const void* x, int64_t element, int group, int64_t unroll) {
  const int64_t columns = axes.kept.sizes[0], outer = axes.outputs / columns, groups = ceil_div(columns, group);
  int64_t across = std::min<int64_t>(32, power_above(groups));
  while (across > 8 && outer * ceil_div(groups, across) < kFewBlocks / 2) across /= 2;
  constexpr int64_t kWarps = kColumnThreads / 32;
  const int64_t down = std::min(kWarps, power_above(ceil_div(axes.count, kUnroll * (32 / across))));
  const int64_t warps_across = std::min(kWarps / down, power_above(ceil_div(groups, across)));
  const int64_t width = warps_across * across * group, tiles = ceil_div(columns, width),
                rows = unroll * (32 / across) * down;
  // A part is a whole number of the loop's turns.
  const int64_t most = std::max<int64_t>(1, axes.count * std::min(columns, width) * element / kColumnPartBytes);
  const int64_t parts = std::clamp<int64_t>(kColumnBlocks / (outer * tiles), 1, most),
                turns = ceil_div(ceil_div(axes.count, parts), rows);
  bool aligned = reinterpret_cast<uintptr_t>(x) % (group * element) == 0;
  for (int d = 1; d < axes.kept.rank; ++d) aligned = aligned && axes.kept.strides[0][d] % group == 0;
  for (int d = 0; d < axes.reduced.rank && axes.count > 1; ++d)
    aligned = aligned && axes.reduced.strides[0][d] % group == 0;
  return {.outputs = axes.outputs,
          .columns = columns,
          .count = axes.count,
          .chunk = turns * rows,
          .out_step = axes.kept.strides[1][0],
          .tiles = static_cast<int32_t>(tiles),
          .across = static_cast<int32_t>(across),
          .down = static_cast<int32_t>(down),
          .aligned = aligned,
          .stepped = aligned && axes.reduced.rank == 1 && turns * rows <= INT32_MAX,
          .once = axes.count * axes.outputs * element > kCached,
          .kept = WideIndexer<2>(axes.kept, 1),
          .reduced = WideIndexer<1, false>(axes.reduced),
          .threads = static_cast<int>(warps_across * down * 32)};
}

inline SpreadPlan plan_general(const Axes& axes, int64_t element) {
  const bool outputs_first =
      axes.outputs > 1 && (axes.count <= 1 || axes.kept.strides[0][0] < axes.reduced.strides[0][0]);
  const int64_t enough = std::max<int64_t>(outputs_first ? 1 : 32, power_below(kThreads / axes.outputs));
  const int64_t lanes =
      std::min({power_above(ceil_div(axes.count, 2 * kUnroll)), enough, int64_t{outputs_first ? 64 : kSpread}});
  // Elements that are not neighbours cost as much as eight bytes or more.
  const int64_t slots = kSpread / lanes,
                parts = parts_for(ceil_div(axes.outputs, slots), axes.count * slots * std::max<int64_t>(element, 8));
  const int64_t chunk = std::max<int64_t>(1, ceil_div(axes.count, parts));
  return {.outputs = axes.outputs,
          .count = axes.count,
          .chunk = chunk,
          .lanes = static_cast<int32_t>(lanes),
          .outputs_first = outputs_first,
          .kept = WideIndexer<2>(axes.kept),
          .reduced = axes.count > 0 ? WideIndexer<1>(axes.reduced) : WideIndexer<1>(axes.reduced, axes.reduced.rank)};
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// Launches the kernel, with memory for partial cells where the grid has blocks in y and z.
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

/// By rows or by columns, as `way` says.
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
