#pragma once

// Copies between layouts with different innermost dimensions. Tiles go through shared memory, so that both sides are
// accessed in rows of 16-byte accesses. Every word is read and written once.

#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/strided_indexer.h"

namespace lorry::kernels::cuda {

inline constexpr int kTransposeBlock = 256;
inline constexpr int64_t kTransposeBand = 2;  ///< in tiles; on an H200 1 to 4 are equally fast, more are slower

/// x is the dimension along the result's rows, y the one along the source's; all other dimensions count planes.
struct Transposition {
  char* to;
  const char* from;
  uint32_t width, height;           ///< extents of x and y
  uint32_t to_stride, from_stride;  ///< stride of the result along y, and of the source along x
  bool to_vectors, from_vectors;    ///< whether rows can be written, or read, with 16-byte accesses
  uint32_t down, band;              ///< tiles along y; tiles per band
  Divider plane_tiles, band_tiles;  ///< tiles per plane and per band
  StridedIndexer<2, uint32_t> planes;

  void addresses(auto& visit) const { visit(to, from); }
};

/// The position of a block's tile, in tiles. Blocks are ordered band by band along x, and along y within a band. So
/// blocks that run at the same time share long parts of rows on both sides; ordered along x only, they would read the
/// source in parts as short as a tile's side.
struct TilePosition {
  uint32_t x, y, plane;

  __device__ __forceinline__ explicit TilePosition(const Transposition& call) {
    plane = call.plane_tiles(blockIdx.x);
    const uint32_t in_plane = blockIdx.x - plane * call.plane_tiles.divisor, number = call.band_tiles(in_plane);
    const uint32_t in_band = in_plane - number * call.band_tiles.divisor, first = number * call.band,
                   height = min(call.band, call.down - first);
    x = in_band / height;
    y = first + in_band - x * height;
  }
};

/// A tile's side in words: 16 bytes of every row for each of 256 threads, or a multiple of that.
template <class Word>
inline constexpr int kTransposeSide = sizeof(Word) == 8 ? 32 : 64;

/// Reads and writes each word once, with 16-byte accesses on both sides. In shared memory, rows of the tile are an odd
/// number of 4-byte banks apart (of 8-byte words for words of this size), so that reading columns has at most two-way
/// conflicts.
template <class Word>
__global__ void __launch_bounds__(kTransposeBlock) move_tiles(const __grid_constant__ Transposition call) {
  lorry::cuda::begin_programmatic();
  constexpr int kLength = kRun<Word>, kThreads = kTransposeSide<Word> / kLength, kRows = kTransposeBlock / kThreads,
                kPasses = kTransposeSide<Word> / kRows;
  constexpr int kPad = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;
  __shared__ Word tile[kTransposeSide<Word>][kTransposeSide<Word> + kPad];  // [x][y]
  const TilePosition place(call);
  const uint32_t left = place.x * kTransposeSide<Word>, top = place.y * kTransposeSide<Word>;
  uint32_t at[2];
  call.planes(place.plane, at);
  Word* const to = reinterpret_cast<Word*>(call.to) + at[0];
  const Word* const from = reinterpret_cast<const Word*>(call.from) + static_cast<int32_t>(at[1]);
  const uint32_t row = threadIdx.x / kThreads, column = threadIdx.x % kThreads * kLength;

  Run<Word, kLength> held[kPasses];
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    const uint32_t x = left + row + p * kRows, y = top + column;
    if (x >= call.width) continue;
    const Word* const source = from + x * call.from_stride + y;
    if (call.from_vectors && y + kLength <= call.height) {
      held[p] = load_run<Word, kLength>(source);
    } else {
#pragma unroll
      for (int i = 0; i < kLength; ++i)
        if (y + i < call.height) held[p].at[i] = source[i];
    }
  }
#pragma unroll
  for (int p = 0; p < kPasses; ++p)
#pragma unroll
    for (int i = 0; i < kLength; ++i) tile[row + p * kRows][column + i] = held[p].at[i];
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    const uint32_t x = left + column, y = top + row + p * kRows;
    if (y >= call.height) continue;
    Run<Word, kLength> out;
#pragma unroll
    for (int i = 0; i < kLength; ++i) out.at[i] = tile[column + i][row + p * kRows];
    Word* const target = to + y * call.to_stride + x;
    if (call.to_vectors && x + kLength <= call.width) {
      store_run(target, out);
    } else {
#pragma unroll
      for (int i = 0; i < kLength; ++i)
        if (x + i < call.width) target[i] = out.at[i];
    }
  }
}

/// For words of 2 bytes. A square is copied to shared memory without using registers. It is read back transposed by the
/// instruction that loads matrices for tensor cores, 8 x 8 words at a time. The rows of its four matrices are chosen so
/// that a lane gets 8 neighbours of a row of the result. In shared memory, chunks of 16 bytes are permuted within a
/// row, by the bits in which the 8 rows of a matrix differ, so that they lie in 8 different groups of banks.
inline constexpr int kHalvesSide = 128, kHalvesBlock = 512;

__global__ void __launch_bounds__(kHalvesBlock) move_halves(const __grid_constant__ Transposition call) {
  lorry::cuda::begin_programmatic();
  constexpr int kLength = kRun<uint16_t>, kChunks = kHalvesSide / kLength, kWarps = kHalvesBlock / 32;
  __shared__ __align__(128) uint16_t tile[kHalvesSide][kHalvesSide];  // [x][y]
  const TilePosition place(call);
  const uint32_t left = place.x * kHalvesSide, top = place.y * kHalvesSide;
  uint32_t at[2];
  call.planes(place.plane, at);
  uint16_t* const to = reinterpret_cast<uint16_t*>(call.to) + at[0];
  const uint16_t* const from = reinterpret_cast<const uint16_t*>(call.from) + static_cast<int32_t>(at[1]);
  const auto slot = [&](uint32_t x, uint32_t chunk) { return &tile[x][(chunk ^ ((x & 1) | (x >> 2 & 6))) * kLength]; };

  constexpr int kRows = kHalvesBlock / kChunks;
  const uint32_t chunk = threadIdx.x % kChunks;
#pragma unroll
  for (int p = 0; p < kHalvesSide / kRows; ++p) {
    const uint32_t row = threadIdx.x / kChunks + p * kRows, x = left + row, y = top + chunk * kLength;
    if (x >= call.width) continue;
    const uint16_t* const source = from + x * call.from_stride + y;
    if (call.from_vectors && y + kLength <= call.height) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                       static_cast<uint32_t>(__cvta_generic_to_shared(slot(row, chunk)))),
                   "l"(__cvta_generic_to_global(source))
                   : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < kLength; ++i)
        if (y + i < call.height) slot(row, chunk)[i] = source[i];
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();

  // A warp writes 8 rows of the result, 32 elements of each. Lane l gives the address of row l % 8 of matrix l / 8; row
  // 2 q + b of matrix m is element 8 q + 2 m + b.
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t element = lane % 8 / 2 * 8 + lane / 8 * 2 + lane % 2;
#pragma unroll
  for (int p = 0; p < kChunks * (kHalvesSide / 32) / kWarps; ++p) {
    const uint32_t unit = warp + p * kWarps, rows = unit / (kHalvesSide / 32), first = unit % (kHalvesSide / 32) * 32;
    uint4 words;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(slot(first + element, rows))))
                 : "memory");
    const uint32_t y = top + rows * kLength + lane / 4, x = left + first + lane % 4 * kLength;
    if (y >= call.height) continue;
    uint16_t* const target = to + y * call.to_stride + x;
    const auto out = std::bit_cast<Run<uint16_t, kLength>>(words);
    if (call.to_vectors && x + kLength <= call.width) {
      store_run(target, out);
    } else {
#pragma unroll
      for (int i = 0; i < kLength; ++i)
        if (x + i < call.width) target[i] = out.at[i];
    }
  }
}

}  // namespace lorry::kernels::cuda
