// Products of 16-bit floats whose rows have the same bits in every batch (LinearRowsArgs), on tensor cores. Other
// dtypes, and devices before compute capability 9.0, use linear_rows_fma.cu.
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
// rows, 2 for 64. Parts of a tile are the blocks of a cluster, which add up through distributed shared memory.
//
// Before the preceding kernel has ended, a block prefetches its first weights to the second-level cache. In a graph of
// single rows by 768 x 2304 on an H100 a product takes 3.2 us instead of 3.8.

#include "lorry/kernels/cuda/matmul/linear_rows.h"

#include <cooperative_groups.h>

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/matmul/linear_rows_fma.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kChunk = 32, kChunksOfWarp = 3, kChunksOfBlock = kWarps * kChunksOfWarp;
constexpr int kMostParts = 8;  ///< the largest portable cluster
constexpr int kTile = 16;      ///< rows of weight
constexpr int kGroup = 8;      ///< rows of x in one matrix instruction
constexpr int kMostGroups = 8;
constexpr int kXRow = kChunksOfBlock * kChunk;  ///< elements of x in a row in shared memory
constexpr int kSumRow = 20;                     ///< floats; free of bank conflicts
constexpr int kRound = 2 * kGroup;              ///< rows of x whose sums are added at a time
constexpr int kSums = kWarps * kRound * kSumRow;
constexpr int kCapability = 90;
constexpr int64_t kMostRows = int64_t{kMostGroups} * kGroup * 65535;  ///< of a launch: the largest grid
constexpr int64_t kMostColumns = int64_t{1} << 30, kMostDepth = int64_t{1} << 30;

template <class T>
struct MmaRows {
  T* out;
  const T *x, *weight, *bias;
  int m, n, k;
  int chunks, parts, stages;
  int64_t out_row, x_row, x_column, weight_row, weight_column, bias_step;
  bool x_in_runs;  ///< x can be read 16 bytes at a time

  void addresses(auto& visit) const { visit(out, x, weight, bias); }
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

/// sums[16, 8] += a[16, 16] b[16, 8].
template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The weights of one tile and stage that a thread multiplies: of each chunk, the eight elements lane % 4 of rows
/// lane / 4 and lane / 4 + 8.
struct Weights {
  uint4 at[kChunksOfWarp][2];
};

template <bool kRuns, class T>
__device__ __forceinline__ void load_weights(Weights& to, const MmaRows<T>& p, int tile, int first_chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
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

/// Copies 16 bytes to shared memory without waiting, or fills them with zeros.
__device__ __forceinline__ void start_copy(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
      : "memory");
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Brings a stage of the block's rows of x to shared memory. All threads must pass a barrier before they read it.
template <int kGroups, class T>
__device__ __forceinline__ void load_x(T* to, const MmaRows<T>& p, int first_row, int first_chunk) {
  constexpr int kRunsOfRow = kXRow / 8;
  const auto each_run = [&](const auto& f) {
    for (int i = static_cast<int>(threadIdx.x); i < kGroups * kGroup * kRunsOfRow; i += kThreads) {
      const int row = i / kRunsOfRow, run = i % kRunsOfRow, at = first_chunk * kChunk + run * 8;
      f(to + x_position(row, run / 4) + run % 4 * 8, first_row + row, at, first_row + row < p.m ? p.k - at : 0);
    }
  };
  if (p.x_in_runs) {
    each_run([&](T* into, int row, int at, int count) {
      start_copy(into, count > 0 ? p.x + row * p.x_row + at : p.x, count > 0);
    });
    wait_for_copies();
  } else {
    each_run([&](T* into, int row, int at, int count) {
      *reinterpret_cast<uint4*>(into) = load_eight<false>(p.x + row * p.x_row + at * p.x_column, p.x_column, count);
    });
  }
}

template <int kGroups, class T>
__device__ __forceinline__ void multiply_stage(float (&sums)[kGroups][4], const Weights& weights, const T* x,
                                               int chunks) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int c = 0; c < kChunksOfWarp; ++c) {
    const int chunk = warp * kChunksOfWarp + c;
    if (chunk >= chunks) return;
    const uint4 low = weights.at[c][0], high = weights.at[c][1];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint4 b = *reinterpret_cast<const uint4*>(x + x_position(g * kGroup + lane / 4, chunk) + lane % 4 * 8);
      multiply_add<T>(sums[g], low.x, high.x, low.y, high.y, b.x, b.y);
      multiply_add<T>(sums[g], low.z, high.z, low.w, high.w, b.z, b.w);
    }
  }
}

template <class T>
__device__ __forceinline__ void store_result(const MmaRows<T>& p, int i, int j, float sum) {
  if (i >= p.m || j >= p.n) return;
  if (p.bias != nullptr) sum = sum + static_cast<float>(p.bias[j * p.bias_step]);
  p.out[i * p.out_row + j] = static_cast<T>(sum);
}

/// Adds the warps' sums, kRound rows of x at a time, and passes each total to `take(row, column, total)`. shared: kSums
/// floats.
template <int kGroups, class Take>
__device__ __forceinline__ void add_warps(const float (&sums)[kGroups][4], float* shared, const Take& take) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(threadIdx.x) % kTile, row = static_cast<int>(threadIdx.x) / kTile;
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
    take(first * kGroup + row, column,
         ((of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3])) +
             ((of_warp[4] + of_warp[5]) + (of_warp[6] + of_warp[7])));
  }
}

/// Adds the sums of the blocks of a cluster. partial: this block's sums, [row][kTile].
template <int kGroups, class T>
__device__ __forceinline__ void add_parts(const MmaRows<T>& p, float* partial, int first_row, int tile) {
#if __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  const cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  cluster.sync();
  for (int e = rank * kThreads + static_cast<int>(threadIdx.x); e < kGroups * kGroup * kTile; e += p.parts * kThreads) {
    float total = *cluster.map_shared_rank(partial + e, 0);
    for (int part = 1; part < p.parts; ++part) total = total + *cluster.map_shared_rank(partial + e, part);
    store_result(p, first_row + e / kTile, tile * kTile + e % kTile, total);
  }
  cluster.sync();
#endif
}

/// Begins to bring the weights of the first tile to the second-level cache. Unlike loads, that may happen while an
/// earlier kernel still writes them.
template <class T>
__device__ __forceinline__ void prefetch_weights(const MmaRows<T>& p, int tile, int first_chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = tile * kTile + lane % kTile;
  for (int c = lane / kTile; c < kChunksOfWarp; c += 2) {
    const int at = (first_chunk + warp * kChunksOfWarp + c) * kChunk;
    if (row < p.n && at < p.k)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p.weight + row * p.weight_row + at)));
  }
}

constexpr int blocks_of_multiprocessor(int groups) { return groups <= 4 ? 3 : 2; }

/// Grid: blocks that share the tiles, parts of k (a cluster), and blocks of kGroups * 8 rows of x.
template <class T, int kGroups, bool kRuns>
__global__ void __launch_bounds__(kThreads, blocks_of_multiprocessor(kGroups)) multiply_rows(MmaRows<T> p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 shared[];
  T* const x = reinterpret_cast<T*>(shared);
  float* const sums_of_warps = reinterpret_cast<float*>(x + kGroups * kGroup * kXRow);
  float* const partial = sums_of_warps + kSums;
  const int tiles = (p.n + kTile - 1) / kTile, across = static_cast<int>(gridDim.x);
  const int first_tile = static_cast<int>(blockIdx.x), first_row = static_cast<int>(blockIdx.z) * kGroups * kGroup;
  const auto first_chunk = [&](int stage) { return (stage * p.parts + static_cast<int>(blockIdx.y)) * kChunksOfBlock; };
  if constexpr (kRuns) prefetch_weights(p, first_tile, first_chunk(0));
  cudaTriggerProgrammaticLaunchCompletion();  // so that the next kernel can prefetch, too
  cudaGridDependencySynchronize();
  Weights weights;
  load_weights<kRuns>(weights, p, first_tile, first_chunk(0));
  for (int tile = first_tile; tile < tiles; tile += across) {
    float sums[kGroups][4] = {};
    for (int stage = 0; stage < p.stages; ++stage) {
      if (p.stages > 1 || tile == first_tile) {
        if (p.stages > 1) __syncthreads();
        load_x<kGroups>(x, p, first_row, first_chunk(stage));
        __syncthreads();
      }
      multiply_stage<kGroups>(sums, weights, x, p.chunks - first_chunk(stage));
      const bool last = stage + 1 == p.stages;
      load_weights<kRuns>(weights, p, last ? tile + across : tile, first_chunk(last ? 0 : stage + 1));
    }
    add_warps<kGroups>(sums, sums_of_warps, [&](int row, int column, float total) {
      if (p.parts == 1) {
        store_result(p, first_row + row, tile * kTile + column, total);
      } else {
        partial[row * kTile + column] = total;
      }
    });
    if (p.parts > 1) {
      add_parts<kGroups>(p, partial, first_row, tile);
    } else {
      __syncthreads();
    }
  }
#endif
}

bool in_runs(const void* data, int64_t row, int64_t column, int64_t k) {
  return aligned16(data) && column == 1 && row % 8 == 0 && k % 8 == 0;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
MmaRows<T> rows_of(const LinearRowsArgs& args) {
  MmaRows<T> p{.out = args.out.as<T>(),
               .x = args.x.as<T>(),
               .weight = args.weight.as<T>(),
               .bias = args.bias.as<T>(),
               .m = 0,
               .n = 0,
               .k = static_cast<int>(args.x.size(1)),
               .chunks = static_cast<int>(ceil_div(args.x.size(1), kChunk)),
               .parts = 1,
               .stages = 1,
               .out_row = args.out.stride(0),
               .x_row = args.x.stride(0),
               .x_column = args.x.stride(1),
               .weight_row = args.weight.stride(0),
               .weight_column = args.weight.stride(1),
               .bias_step = args.bias.data == nullptr ? 0 : args.bias.stride(0),
               .x_in_runs = in_runs(args.x.data, args.x.stride(0), args.x.stride(1), args.x.size(1))};
  const int64_t blocks = std::max<int64_t>(1, ceil_div(p.chunks, kChunksOfBlock));
  p.parts = static_cast<int>(std::min<int64_t>(kMostParts, blocks));
  p.stages = static_cast<int>(ceil_div(blocks, p.parts));
  return p;
}

template <class T, int kGroups, bool kRuns>
void launch(const MmaRows<T>& p, Stream stream) {
  constexpr size_t kShared = sizeof(T) * kGroups * kGroup * kXRow + sizeof(float) * kSums;
  const size_t shared = kShared + (p.parts > 1 ? sizeof(float) * kGroups * kGroup * kTile : 0);
  if (kShared + sizeof(float) * kGroups * kGroup * kTile > 48 << 10)
    allow_shared_once<multiply_rows<T, kGroups, kRuns>>(stream.device.index,
                                                        kShared + sizeof(float) * kGroups * kGroup * kTile);
  const int64_t row_blocks = ceil_div(p.m, kGroups * kGroup);
  const int64_t resident = int64_t{lorry::cuda::properties(stream.device.index).multiprocessors} *
                           blocks_of_multiprocessor(kGroups) / (p.parts * row_blocks);
  const int64_t across = std::clamp<int64_t>(resident, 1, ceil_div(p.n, kTile));
  lorry::cuda::launch(
      stream,
      {.grid = dim3(static_cast<unsigned>(across), static_cast<unsigned>(p.parts), static_cast<unsigned>(row_blocks)),
       .block = kThreads,
       .shared_bytes = shared,
       .cluster = dim3(1, static_cast<unsigned>(p.parts), 1),
       .programmatic = true},
      multiply_rows<T, kGroups, kRuns>, p);
}

/// The rows of x in a block, in groups: the fewest that make no more than two blocks for each multiprocessor. Fewer
/// rows take less time to bring, and weights that other blocks read at the same time come from the second-level cache.
/// If there is more to do, as many rows as possible, so that weights are read less often. The bits are the same.
template <class T>
int groups_of_block(const MmaRows<T>& p, int multiprocessors) {
  for (int groups = 1; groups < kMostGroups; groups *= 2) {
    const int64_t blocks = ceil_div(p.n, kTile) * p.parts * ceil_div(p.m, groups * kGroup);
    if (p.m <= groups * kGroup || blocks <= 2 * multiprocessors) return groups;
  }
  return kMostGroups;
}

template <class T>
void multiply(const MmaRows<T>& p, Stream stream) {
  const bool runs = in_runs(p.weight, p.weight_row, p.weight_column, p.k);
  const auto with = [&]<int kGroups>() {
    runs ? launch<T, kGroups, true>(p, stream) : launch<T, kGroups, false>(p, stream);
  };
  switch (groups_of_block(p, lorry::cuda::properties(stream.device.index).multiprocessors)) {
    case 1:
      return with.template operator()<1>();
    case 2:
      return with.template operator()<2>();
    case 4:
      return with.template operator()<4>();
    default:
      return with.template operator()<kMostGroups>();
  }
}

/// The parts of a product that one launch can compute.
template <class T>
void multiply(const LinearRowsArgs& args, Stream stream) {
  const int64_t m = args.out.size(0), n = args.out.size(1);
  for (int64_t i = 0; i < m; i += kMostRows)
    for (int64_t j = 0; j < n; j += kMostColumns) {
      MmaRows<T> p = rows_of<T>(args);
      p.m = static_cast<int>(std::min(kMostRows, m - i));
      p.n = static_cast<int>(std::min(kMostColumns, n - j));
      p.out += i * p.out_row + j;
      p.x += i * p.x_row;
      p.weight += j * p.weight_row;
      if (p.bias != nullptr) p.bias += j * p.bias_step;
      multiply(p, stream);
    }
}

}  // namespace

void linear_rows(const LinearRowsArgs& args, Stream stream) {
  if (args.out.numel() == 0) return;
  const DType dtype = args.out.dtype;
  if ((dtype != kF16 && dtype != kBF16) || args.x.size(1) > kMostDepth ||
      lorry::cuda::properties(stream.device.index).compute_capability < kCapability)
    return linear_rows_fma(args, stream);
  dtype == kF16 ? multiply<Float16>(args, stream) : multiply<BFloat16>(args, stream);
}

}  // namespace lorry::kernels::cuda
