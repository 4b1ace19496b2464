#pragma once

// Copies between layouts whose innermost dimensions differ: tiles pass through shared memory, so that both sides are
// read and written in rows of 16-byte accesses. Every word is read and written once.

#include "lorry/kernels/cuda/element.h"
#include "lorry/kernels/cuda/offsets.h"

namespace lorry::kernels::cuda {

inline constexpr int kTransposeBlock = 256;
inline constexpr int64_t kTransposeBand = 2;  ///< tiles; 1 to 8 are alike on an H200, 16 and more slower

/// x runs along the result's rows, y along the source's; everything else is a plane.
struct Transposition {
  char* to;
  const char* from;
  uint32_t width, height;           ///< extents of x and y
  uint32_t to_stride, from_stride;  ///< of the result along y, of the source along x
  bool to_vectors, from_vectors;    ///< rows may be written, or read, 16 bytes at a time
  uint32_t down, band;              ///< tiles along y, of which so many make a band
  Divider plane_tiles, band_tiles;  ///< of a plane and of a band
  Offsets<2, uint32_t> planes;
};

/// Where a block's tile lies, in tiles. Blocks go along x band by band, and along y within one: those that run at once
/// share long pieces of rows on either side, where in the order of x alone the source would be read in pieces of a
/// tile's side.
struct TilePlace {
  uint32_t x, y, plane;

  __device__ __forceinline__ explicit TilePlace(const Transposition& call) {
    plane = call.plane_tiles(blockIdx.x);
    const uint32_t in_plane = blockIdx.x - plane * call.plane_tiles.divisor, number = call.band_tiles(in_plane);
    const uint32_t in_band = in_plane - number * call.band_tiles.divisor, first = number * call.band,
                   height = min(call.band, call.down - first);
    x = in_band / height;
    y = first + in_band - x * height;
  }
};

/// A tile's side in words: 16 bytes of every row for each of 256 threads, or several times that.
template <class Word>
inline constexpr int kTransposeSide = sizeof(Word) == 8 ? 32 : 64;

/// Reads and writes each word once, 16 bytes an access on either side. Rows of the tile in shared memory are an odd
/// number of 4-byte banks (of 8-byte words for these) apart, so columns are read with at most two-way conflicts.
template <class Word>
__global__ void __launch_bounds__(kTransposeBlock) move_tiles(const __grid_constant__ Transposition call) {
  constexpr int kLength = kRun<Word>, kThreads = kTransposeSide<Word> / kLength, kRows = kTransposeBlock / kThreads,
                kPasses = kTransposeSide<Word> / kRows;
  constexpr int kPad = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;
  __shared__ Word tile[kTransposeSide<Word>][kTransposeSide<Word> + kPad];  // [x][y]
  const TilePlace place(call);
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

/// For words of 2 bytes. Shared memory has banks of 4, so rows of the source are taken two at a time and their elements
/// paired in registers: word k of a tile's row y holds elements 2 k and 2 k + 1 of the result's row. Groups of four
/// words are permuted by y / 8, so that neither the pairs that a warp writes nor the groups that it reads meet in a
/// bank.
template <int kX, int kY>
__global__ void __launch_bounds__(kTransposeBlock) move_halves(const __grid_constant__ Transposition call) {
  constexpr int kLength = kRun<uint16_t>, kGroups = kX / kLength, kWarps = kTransposeBlock / 32;
  static_assert(kX % 64 == 0 && kY % 64 == 0 && kX * kY % (64 * kLength * kWarps) == 0);
  __shared__ uint4 tile[kY][kGroups];
  const TilePlace place(call);
  const uint32_t left = place.x * kX, top = place.y * kY;
  uint32_t at[2];
  call.planes(place.plane, at);
  uint16_t* const to = reinterpret_cast<uint16_t*>(call.to) + at[0];
  const uint16_t* const from = reinterpret_cast<const uint16_t*>(call.from) + static_cast<int32_t>(at[1]);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  // A warp reads 4 pairs of rows by 8 runs along y.
  constexpr int kReads = kGroups * (kY / 64) / kWarps;
  const auto run_at = [&](uint32_t x, uint32_t y) {
    Run<uint16_t, kLength> run{};
    if (x >= call.width) return run;
    const uint16_t* const source = from + x * call.from_stride + y;
    if (call.from_vectors && y + kLength <= call.height) return load_run<uint16_t, kLength>(source);
#pragma unroll
    for (int i = 0; i < kLength; ++i)
      if (y + i < call.height) run.at[i] = source[i];
    return run;
  };
  Run<uint16_t, kLength> held[kReads][2];
#pragma unroll
  for (int p = 0; p < kReads; ++p) {
    const uint32_t unit = warp + p * kWarps, x = left + unit % kGroups * kLength + lane % 4 * 2,
                   y = top + unit / kGroups * 64 + lane / 4 * kLength;
    held[p][0] = run_at(x, y);
    held[p][1] = run_at(x + 1, y);
  }
#pragma unroll
  for (int p = 0; p < kReads; ++p) {
    const uint32_t unit = warp + p * kWarps, y = unit / kGroups * 64 + lane / 4 * kLength;
    const uint4 even = std::bit_cast<uint4>(held[p][0]), odd = std::bit_cast<uint4>(held[p][1]);
    const uint32_t evens[] = {even.x, even.y, even.z, even.w}, odds[] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      const uint32_t pair = __byte_perm(evens[i / 2], odds[i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
      reinterpret_cast<uint32_t*>(&tile[y + i][(unit % kGroups) ^ (lane / 4)])[lane % 4] = pair;
    }
  }
  __syncthreads();

  constexpr int kRows = kTransposeBlock / kGroups;
  const uint32_t group = threadIdx.x % kGroups, x = left + group * kLength;
#pragma unroll
  for (int p = 0; p < kY / kRows; ++p) {
    const uint32_t row = threadIdx.x / kGroups + p * kRows, y = top + row;
    if (y >= call.height) continue;
    const auto out = std::bit_cast<Run<uint16_t, kLength>>(tile[row][group ^ (row / 8 % 8)]);
    uint16_t* const target = to + y * call.to_stride + x;
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
