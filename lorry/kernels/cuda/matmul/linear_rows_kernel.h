#pragma once

// The kernel of products of 16-bit floats whose rows have the same bits in every batch (LinearRowsArgs), on tensor
// cores. Other dtypes, and devices before compute capability 9.0, use linear_rows_fma.cu.
//
// The order of the sums. k is divided into chunks of 32. A chunk is two matrix instructions of depth 16, which add its
// products to a sum in f32: the first takes the first four of each eight elements, the second the others. Three
// neighbouring chunks belong to one of 8 warps, so 24 chunks to a block. Blocks of chunks belong to up to 8 parts in
// turn. A warp adds its chunks one after the other, from zero. Then the warps' sums are added in pairs,
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), and the parts' sums one after the other. So the order follows from k
// alone. A matrix instruction computes each element of its result from that element's row and column, wherever they
// lie, so other rows, and zeros beyond the end of an operand, change nothing.
//
// What moves. A block computes tiles of 16 rows of weight (operand A) by up to 64 rows of x (operand B), for one part
// of k. Its x stays in shared memory (12 KB for each 8 rows) while it goes from tile to tile, so weights are read from
// memory once for 64 rows. They go straight to registers: a thread takes 16 bytes of two rows for each of its chunks,
// and has those of the next tile in flight (96 bytes) while it finishes one. Multiprocessors hold 3 blocks for up to 32
// rows, 2 for 64. Parts of a tile are the blocks of a cluster, which add up through distributed shared memory; for up
// to 8 rows and 4 parts they are groups of threads of one block, which saves the cluster's barriers.
//
// What goes on beside it (LinearRowsNeighbours). A warp normalises rows of x on their way to shared memory, with the
// steps of rowwise/norm.cu. Each block does so for its own rows: that costs 1.4 us of a product of one row on an H100,
// where a norm by itself takes 3.4. GELU and an addend are applied to the rounded result, before it is stored. What a
// thread needs for that, a bias, an addend, the place in a cache, it loads before it multiplies.
//
// Before the preceding kernel has ended, a block prefetches its first weights to the second-level cache. In a graph of
// single rows by 768 x 2304 on an H100 a product takes 3.2 us instead of 3.8.

#include <algorithm>

#include "lorry/formula/activations.h"
#include "lorry/kernels/cuda/common/cluster.h"
#include "lorry/kernels/cuda/common/copy_ahead.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/mma.h"
#include "lorry/kernels/cuda/common/prefetch.h"
#include "lorry/kernels/cuda/matmul/linear_rows.h"
#include "lorry/kernels/cuda/paged/rows.h"
#include "lorry/kernels/cuda/rowwise/norm_row.h"
#include "lorry/kernels/cuda/rowwise/row_steps.h"

namespace lorry::kernels::cuda::rows {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kChunk = 32, kChunksOfWarp = 3, kChunksOfBlock = kWarps * kChunksOfWarp;
constexpr int kMostParts = 8;  ///< the largest portable cluster
constexpr int kTile = 16;      ///< rows of weight
constexpr int kGroup = 8;      ///< rows of x in one matrix instruction
static_assert(kFewRows == kGroup);
constexpr int kMostNormal = kNormRuns<Float16> * kRun<Float16> * 32;  ///< elements of the longest row that a warp holds
constexpr int kMostGroups = 8;
constexpr int kXRow = kChunksOfBlock * kChunk;  ///< elements of x in a row in shared memory
constexpr int kSumRow = 20;                     ///< floats; free of bank conflicts
constexpr int kRound = 2 * kGroup;              ///< rows of x whose sums are added at a time
constexpr int kSums = kWarps * kRound * kSumRow;

/// The thread's number among those that compute its part of k: a block's, or some of them.
__device__ __forceinline__ int thread_of_part() { return static_cast<int>(threadIdx.x) % kThreads; }

/// How rows of x are normalised.
template <class T>
struct NormOfRows {
  NormWeights<T> weights;
  int lanes;  ///< threads per row; 0: there is no norm
  bool centred;
  double eps, one_nth;

  void addresses(auto& visit) const { visit(weights); }
};

/// CacheColumns on the device.
template <class T>
struct CacheOfRows {
  /// Keys or values.
  struct Part {
    T* to;
    int first;                             ///< column of the product
    int64_t block, row, head, coordinate;  ///< strides of `to`

    void addresses(auto& visit) const { visit(to); }
  };
  Part parts[2];  ///< null: nothing is stored
  CachedRows rows;
  int d, width;  ///< width: heads * d

  void addresses(auto& visit) const { visit(parts, rows); }

  /// Where an element is stored; null if it is not.
  __device__ __forceinline__ T* place(int row, int column) const {
    if (parts[0].to == nullptr) return nullptr;
    const bool is_key = column >= parts[0].first && column < parts[0].first + width;
    const Part& part = parts[is_key ? 0 : 1];
    const int at = column - part.first;
    if (at < 0 || at >= width) return nullptr;
    const bool speak = is_key && at == 0;
    const int32_t position = rows.position(row, speak);
    if (position < 0) return nullptr;
    const int32_t number = static_cast<int32_t>(rows.by_block(static_cast<uint32_t>(position)));
    const int32_t block = rows.block(row, number, speak);
    if (block < 0) return nullptr;
    const int64_t in_block = position - int64_t{number} * rows.by_block.divisor;
    return part.to + block * part.block + in_block * part.row + at / d * part.head + at % d * part.coordinate;
  }
};

template <class T>
struct MmaRows {
  T* out;
  const T *x, *weight, *bias, *addend;
  NormOfRows<T> norm;
  CacheOfRows<T> cache;
  int m, n, k;
  int chunks, parts, stages;
  int64_t out_row, x_row, x_column, weight_row, weight_column, bias_step, addend_row;
  bool x_in_runs;  ///< x can be read 16 bytes at a time
  bool gelu;

  void addresses(auto& visit) const { visit(out, x, weight, bias, addend, norm, cache); }
};

/// Loads 16 bytes past the first-level cache. Unlike load_once, it may read what an earlier kernel wrote while this one
/// was running already.
__device__ __forceinline__ uint4 load_coherent(const void* from) {
  uint4 bytes;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bytes.x), "=r"(bytes.y), "=r"(bytes.z), "=r"(bytes.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return bytes;
}

/// Eight elements from `from` on, `step` elements apart; zeros for those from `count` on.
template <bool kRuns, class T>
__device__ __forceinline__ uint4 load_eight(const T* from, int64_t step, int count) {
  if constexpr (kRuns) {
    return count > 0 ? load_coherent(from) : uint4{};
  } else {
    Run<uint16_t, 8> run;
#pragma unroll
    for (int e = 0; e < 8; ++e) run.at[e] = e < count ? reinterpret_cast<const uint16_t*>(from)[e * step] : uint16_t{0};
    return std::bit_cast<uint4>(run);
  }
}

/// The weights of one tile and stage that a thread multiplies: of each chunk, the eight elements lane % 4 of rows
/// lane / 4 and lane / 4 + 8.
struct Weights {
  uint4 at[kChunksOfWarp][2];
};

template <bool kRuns, class T>
__device__ __forceinline__ void load_weights(Weights& to, const MmaRows<T>& p, int tile, int first_chunk) {
  const int lane = thread_of_part() % 32, warp = thread_of_part() / 32;
  const int64_t step = kRuns ? 1 : p.weight_column;
  const int at = (first_chunk + warp * kChunksOfWarp) * kChunk + lane % 4 * 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = tile * kTile + lane / 4 + h * 8;
    const T* const from = p.weight + row * p.weight_row + at * step;
#pragma unroll
    for (int c = 0; c < kChunksOfWarp; ++c)
      to.at[c][h] = load_eight<kRuns>(from + c * kChunk * step, step, row < p.n ? p.k - at - c * kChunk : 0);
  }
}

/// Where x[row, chunk * 32 ...] lies in shared memory. Chunks of odd rows are exchanged in pairs, so that neighbouring
/// rows lie in different banks.
__device__ __forceinline__ int x_position(int row, int chunk) { return row * kXRow + (chunk ^ (row & 1)) * kChunk; }

/// Brings a stage of the block's rows of x to shared memory. All threads must pass a barrier before they read it.
template <int kGroups, class T>
__device__ __forceinline__ void load_x(T* to, const MmaRows<T>& p, int first_row, int first_chunk) {
  constexpr int kRunsOfRow = kXRow / 8;
  const auto each_run = [&](const auto& f) {
    for (int i = thread_of_part(); i < kGroups * kGroup * kRunsOfRow; i += kThreads) {
      const int row = i / kRunsOfRow, run = i % kRunsOfRow, at = first_chunk * kChunk + run * 8;
      f(to + x_position(row, run / 4) + run % 4 * 8, first_row + row, at, first_row + row < p.m ? p.k - at : 0);
    }
  };
  if (p.x_in_runs) {
    each_run([&](T* into, int row, int at, int count) {
      start_copy(into, count > 0 ? p.x + row * p.x_row + at : p.x, count > 0 ? 16 : 0);
    });
    wait_for_copies();
  } else {
    each_run([&](T* into, int row, int at, int count) {
      *reinterpret_cast<uint4*>(into) = load_eight<false>(p.x + row * p.x_row + at * p.x_column, p.x_column, count);
    });
  }
}

/// Rows and weights of a norm in shared memory.
template <class T>
struct NormSpace {
  T rows[kGroup][kMostNormal], weight[kMostNormal], bias[kMostNormal];
};
constexpr int kNormSpace = (kGroup + 2) * kMostNormal;  ///< its elements

/// Brings the rows that are to be normalised, and the norm's weights, to shared memory. Loads to registers would wait
/// for those of the product's weights.
template <class T>
__device__ __forceinline__ void load_raw_x(NormSpace<T>& to, const MmaRows<T>& p, int first_row) {
  constexpr int kRunsOfRow = kMostNormal / kRun<T>, kRowsAtOnce = kThreads / kRunsOfRow;
  static_assert(kRowsAtOnce >= 2);
  const int row = thread_of_part() / kRunsOfRow, at = thread_of_part() % kRunsOfRow * kRun<T>;
  if (at < p.k) {
    for (int r = row; r < kGroup && first_row + r < p.m; r += kRowsAtOnce)
      start_copy(&to.rows[r][at], p.x + (first_row + r) * p.x_row + at);
    const T* const from = row == 0 ? p.norm.weights.weight : row == 1 ? p.norm.weights.bias : nullptr;
    if (from != nullptr) start_copy((row == 0 ? to.weight : to.bias) + at, from + at);
  }
  wait_for_copies();
  __syncthreads();
}

/// The same for the only stage of rows that are normalised. A warp, or part of it, holds a row.
template <class T>
__device__ __forceinline__ void load_normalised_x(T* to, NormSpace<T>& space, const MmaRows<T>& p, int first_row,
                                                  int first_chunk) {
  using C = Accumulate<T>;
  constexpr int kRuns = kNormRuns<T>, kRunsOfChunk = kChunk / kRun<T>;
  load_raw_x(space, p, first_row);
  const Team team(p.norm.lanes);
  const int teams = kThreads / team.lanes, mine = thread_of_part() / team.lanes;
  const int first_of_warp = thread_of_part() / kWarp * kWarp / team.lanes;
  const NormWeights<T> weights{p.norm.weights.weight == nullptr ? nullptr : space.weight,
                               p.norm.weights.bias == nullptr ? nullptr : space.bias};
  for (int first = 0; first < kGroup; first += teams) {
    const int row = first + mine;
    const auto place = [&](int run) {
      const int chunk = run / kRunsOfChunk - first_chunk;
      const bool here = row < kGroup && chunk >= 0 && chunk < kChunksOfBlock;
      return here ? to + x_position(row, chunk) + run % kRunsOfChunk * kRun<T> : nullptr;
    };
    const bool live = row < kGroup && first_row + row < p.m;
    const FixedCut<T, int> cut(nullptr, live ? p.k : 0, team);
    if (first_row + first + first_of_warp < p.m) {  // else the warp has no row
      HeldRow<T, kRuns> held;
      held.edge = 0;
#pragma unroll
      for (int k = 0; k < kRuns; ++k) {
        const int run = team.lane + k * team.lanes;
        unpack<T>(run < cut.body ? *reinterpret_cast<const uint4*>(&space.rows[row][run * kRun<T>]) : uint4{},
                  held.body[k]);
      }
      const Statistics<C> statistics =
          statistics_of<T>(held, cut, p.norm.centred, p.norm.eps, p.norm.one_nth, team, static_cast<C*>(nullptr));
#pragma unroll
      for (int k = 0; k < kRuns; ++k) {
        const int run = team.lane + k * team.lanes;
        T* const into = run < cut.body ? place(run) : nullptr;
        if (into == nullptr) continue;
#pragma unroll
        for (int e = 0; e < kRun<T>; ++e) held.body[k][e] = statistics.normal(held.body[k][e]);
        weights.apply(held.body[k], run * kRun<T>, true);
        *reinterpret_cast<uint4*>(into) = pack<T>(held.body[k]);
      }
    }
    for (int run = cut.body + team.lane; run < (first_chunk + kChunksOfBlock) * kRunsOfChunk; run += team.lanes)
      if (T* const into = place(run); into != nullptr) *reinterpret_cast<uint4*>(into) = uint4{};
  }
}

template <int kGroups, class T>
__device__ __forceinline__ void multiply_stage(float (&sums)[kGroups][4], const Weights& weights, const T* x,
                                               int chunks) {
  const int lane = thread_of_part() % 32, warp = thread_of_part() / 32;
#pragma unroll
  for (int c = 0; c < kChunksOfWarp; ++c) {
    const int chunk = warp * kChunksOfWarp + c;
    if (chunk >= chunks) return;
    const uint4 low = weights.at[c][0], high = weights.at[c][1];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint4 b = *reinterpret_cast<const uint4*>(x + x_position(g * kGroup + lane / 4, chunk) + lane % 4 * 8);
      float(&s)[4] = sums[g];
      multiply_add<T>(s[0], s[1], s[2], s[3], low.x, high.x, low.y, high.y, b.x, b.y);
      multiply_add<T>(s[0], s[1], s[2], s[3], low.z, high.z, low.w, high.w, b.z, b.w);
    }
  }
}

/// The elements of a tile's result that a thread stores: one of each kThreads, in rows that the parts share out.
template <class T, int kGroups>
struct Own {
  static constexpr int kCount = std::max(1, kGroups* kGroup* kTile / kThreads);
  const MmaRows<T>& p;
  const int first_row, column, rank, shares;
  float bias = 0, addend[kCount] = {};
  T* cached = nullptr;  ///< where the only element is stored too

  /// rank: of this block among the `shares` blocks that share out the rows; -1: the thread stores nothing.
  __device__ __forceinline__ Own(const MmaRows<T>& p, int first_row, int tile, int rank, int shares)
      : p(p), first_row(first_row), column(tile * kTile + thread_of_part() % kTile), rank(rank), shares(shares) {
    if (column >= p.n || rank < 0) return;
    if (p.bias != nullptr) bias = static_cast<float>(p.bias[column * p.bias_step]);
    if constexpr (kGroups == 1)
      if (stores(0)) cached = p.cache.place(row(0), column);
    if (p.addend == nullptr) return;
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (stores(k)) addend[k] = static_cast<float>(p.addend[row(k) * p.addend_row + column]);
  }
  /// The row of element k in the block.
  __device__ __forceinline__ int local_row(int k) const {
    return (thread_of_part() + k * kThreads) / kTile * shares + rank;
  }
  __device__ __forceinline__ int row(int k) const { return first_row + local_row(k); }
  __device__ __forceinline__ bool stores(int k) const {
    return local_row(k) < kGroups * kGroup && row(k) < p.m && column < p.n;
  }
  __device__ __forceinline__ void store(int k, float sum) const {
    if (!stores(k)) return;
    if (p.bias != nullptr) sum = sum + bias;
    T result = static_cast<T>(sum);
    if (p.gelu) result = static_cast<T>(formula::GeluTanh()(FastMath(static_cast<float>(result))).value);
    if (p.addend != nullptr) result = static_cast<T>(addend[k] + static_cast<float>(result));
    p.out[row(k) * p.out_row + column] = result;
    if constexpr (kGroups == 1)
      if (cached != nullptr) *cached = result;
  }
};

/// Adds the warps' sums, kRound rows of x at a time, and passes each total to `take(round, row, column,
/// total)`. shared: kSums floats.
template <int kGroups, class Take>
__device__ __forceinline__ void add_warps(const float (&sums)[kGroups][4], float* shared, const Take& take) {
  const int lane = thread_of_part() % 32, warp = thread_of_part() / 32;
  const int column = thread_of_part() % kTile, row = thread_of_part() / kTile;
#pragma unroll
  for (int first = 0; first < kGroups; first += 2) {
    if (first > 0) __syncthreads();
#pragma unroll
    for (int g = first; g < first + 2 && g < kGroups; ++g)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        shared[(warp * kRound + (g - first) * kGroup + lane % 4 * 2 + e % 2) * kSumRow + lane / 4 + e / 2 * 8] =
            sums[g][e];
    __syncthreads();
    if (kGroups == 1 && row >= kGroup) continue;
    float of_warp[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) of_warp[w] = shared[(w * kRound + row) * kSumRow + column];
    take(first / 2, first * kGroup + row, column,
         ((of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3])) +
             ((of_warp[4] + of_warp[5]) + (of_warp[6] + of_warp[7])));
  }
}

// Where the sums of the parts of k meet: `places`, [part][rows][kTile]. Few rows: the parts are groups of threads of
// one block. Else they are blocks of a cluster, which share out the rows; each has places for the sums of all blocks.

template <int kGroups>
__device__ __forceinline__ int share_of(int shares) {
  return (kGroups * kGroup + shares - 1) / shares;
}

/// The place for a sum of this part, in the block that stores the row.
template <int kGroups>
__device__ __forceinline__ float* place_of(float* places, int part, int shares, int row, int column) {
  float* const place = places + (part * share_of<kGroups>(shares) + row / shares) * kTile + column;
  return shares == 1 ? place : in_block(place, static_cast<uint32_t>(row % shares));
}

/// Adds the sums of all parts. All threads must have passed a barrier since they were written.
template <int kGroups, class T>
__device__ __forceinline__ void add_parts(const Own<T, kGroups>& own, const float* places) {
  if (own.rank < 0) return;
  const int step = share_of<kGroups>(own.shares) * kTile;
#pragma unroll
  for (int k = 0; k < own.kCount; ++k) {
    const int e = thread_of_part() + k * kThreads;
    if (e >= step) break;
    float total = places[e];
    for (int part = 1; part < own.p.parts; ++part) total = total + places[part * step + e];
    own.store(k, total);
  }
}

/// Of the first tile.
template <class T>
__device__ __forceinline__ void prefetch_weights(const MmaRows<T>& p, int tile, int first_chunk) {
  const int lane = thread_of_part() % 32, warp = thread_of_part() / 32;
  const int row = tile * kTile + lane % kTile;
  for (int c = lane / kTile; c < kChunksOfWarp; c += 2) {
    const int at = (first_chunk + warp * kChunksOfWarp + c) * kChunk;
    if (row < p.n && at < p.k) prefetch_line(p.weight + row * p.weight_row + at);
  }
}
template <class T>
__device__ __forceinline__ void prefetch_norm(const NormOfRows<T>& norm, int k) {
  constexpr int kLine = 128 / sizeof(T);
  for (int at = thread_of_part() * kLine; at < k; at += kThreads * kLine) {
    if (norm.weights.weight != nullptr) prefetch_line(norm.weights.weight + at);
    if (norm.weights.bias != nullptr) prefetch_line(norm.weights.bias + at);
  }
}

/// How a block computes. groups: of rows of x. runs: weights are read 16 bytes at a time. norm: x is normalised, and
/// there is one stage of kFewRows rows. parts: of k, that one block computes; 1 or all.
template <int groups, bool runs, bool norm = false, int parts = 1>
struct Way {
  static constexpr int kGroups = groups, kRows = groups * kGroup, kParts = parts, kThreadsOfBlock = kThreads * parts;
  static constexpr bool kRuns = runs, kNorm = norm, kInBlock = parts > 1;
  /// Of a multiprocessor. A thread that normalises needs more registers.
  static constexpr int kBlocks = parts > 1 ? 1 : groups <= 4 && !norm ? 3 : 2;

  /// In shared memory, before the sums: x, and what a norm needs.
  static constexpr int kElements = kParts * kRows * kXRow + (kNorm ? kNormSpace : 0);
  /// Bytes of shared memory of a block, for this many parts in all.
  static constexpr size_t shared(size_t element, int all_parts) {
    const int places = all_parts == 1 ? 0 : kInBlock ? all_parts * kRows : kRows + all_parts - 1;
    return element * kElements + sizeof(float) * static_cast<size_t>(kParts * kSums + places * kTile);
  }
};

/// Grid: blocks that share the tiles, parts of k (a cluster), and blocks of groups * 8 rows of x.
template <class T, class Way>
__global__ void __launch_bounds__(Way::kThreadsOfBlock, Way::kBlocks)
    multiply_rows(const __grid_constant__ MmaRows<T> p) {
#if __CUDA_ARCH__ >= 900
  constexpr int kGroups = Way::kGroups, kRows = Way::kRows;
  extern __shared__ uint4 shared[];
  const int part = Way::kInBlock ? static_cast<int>(threadIdx.x) / kThreads : static_cast<int>(blockIdx.y);
  const int own_part = Way::kInBlock ? part : 0, shares = Way::kInBlock ? 1 : p.parts;
  T* const all_x = reinterpret_cast<T*>(shared);
  float* const all_sums = reinterpret_cast<float*>(all_x + Way::kElements);
  T* const x = all_x + own_part * kRows * kXRow;
  float* const sums_of_warps = all_sums + own_part * kSums;
  float* const places = all_sums + Way::kParts * kSums;
  const int tiles = (p.n + kTile - 1) / kTile, across = static_cast<int>(gridDim.x);
  const int first_tile = static_cast<int>(blockIdx.x), first_row = static_cast<int>(blockIdx.z) * kRows;
  const auto first_chunk = [&](int stage) { return (stage * p.parts + part) * kChunksOfBlock; };
  if (shares > 1) cluster_arrive();  // so that others know that this block runs, and later that it has read its places
  if constexpr (Way::kRuns) prefetch_weights(p, first_tile, first_chunk(0));
  if constexpr (Way::kNorm) prefetch_norm(p.norm, p.k);
  lorry::cuda::begin_programmatic();
  Weights weights;
  load_weights<Way::kRuns>(weights, p, first_tile, first_chunk(0));
  for (int tile = first_tile; tile < tiles; tile += across) {
    // Now, so that nothing waits for it later.
    const Own<T, kGroups> own(p, first_row, tile, Way::kInBlock ? (part == 0 ? 0 : -1) : part, shares);
    float sums[kGroups][4] = {};
    for (int stage = 0; stage < p.stages; ++stage) {
      if (p.stages > 1 || tile == first_tile) {
        if (p.stages > 1) __syncthreads();
        if constexpr (Way::kNorm)
          load_normalised_x(x, *reinterpret_cast<NormSpace<T>*>(all_x + kRows * kXRow), p, first_row,
                            first_chunk(stage));
        else
          load_x<kGroups>(x, p, first_row, first_chunk(stage));
        __syncthreads();
      }
      multiply_stage<kGroups>(sums, weights, x, p.chunks - first_chunk(stage));
      const bool last = stage + 1 == p.stages;
      load_weights<Way::kRuns>(weights, p, last ? tile + across : tile, first_chunk(last ? 0 : stage + 1));
    }
    if (shares > 1) cluster_wait();
    add_warps<kGroups>(sums, sums_of_warps, [&](int round, int row, int column, float total) {
      if (p.parts == 1)
        own.store(round, total);
      else
        *place_of<kGroups>(places, part, shares, row, column) = total;
    });
    if (shares > 1) {
      cluster_sync();
      add_parts(own, places);
      cluster_arrive();
    } else {
      __syncthreads();
      if constexpr (Way::kInBlock) add_parts(own, places);
    }
  }
  if (shares > 1) cluster_wait();
#endif
}

}  // namespace lorry::kernels::cuda::rows
