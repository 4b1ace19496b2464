#pragma once

// Parts of generated pointwise kernels that also add up results over the rows of a domain [rows, n] (emit_columns.h).
// A block has a tile of columns, which is `lanes` runs of kWidth columns wide, and a part of the rows. Its threads are
// `lanes` across and `down` rows high. In a turn each takes kRows rows, and adds up the results in registers; the parts
// take turns, so that all blocks together go down the rows. The sums of a block's threads, and then those of the parts,
// are added in a fixed order; the parts by the last block of a tile to finish. So the order depends only on the shape.

#include "lorry/device/cuda/begin_programmatic.h"
#include "lorry/kernels/cuda/common/last_block.h"
#include "lorry/kernels/cuda/fused/map_kernel.h"

namespace lorry::kernels::cuda {

/// A kernel's argument. The host writes the same words (column_arguments.h).
template <int kOperands, int kNumbers, int kStrides>
struct ColumnArguments {
  int64_t rows, n;
  uint64_t operands;    ///< kOperands
  void* at[kOperands];  ///< of inputs, outputs, sums; then the sums of parts (f64), and a ticket a tile
  uint64_t numbers[kNumbers > 0 ? kNumbers : 1];
  int64_t strides[kStrides > 0 ? kStrides : 1];  ///< from row to row, of inputs and outputs
  int64_t lane_bits;                             ///< 2^lane_bits threads across
  int64_t tiles, parts;
};

/// A thread's columns and rows.
template <int kBlock, int kWidth, int kRows>
struct ColumnPlace {
  int lanes, down;   ///< threads of a block across and down
  int lane, height;  ///< of this thread
  uint32_t tile, part, tiles;
  int64_t column;
  int64_t first, step;  ///< its first row, and the distance of the next turn

  template <class Arguments>
  __device__ explicit ColumnPlace(const Arguments& a) {
    const int bits = static_cast<int>(a.lane_bits);
    lanes = 1 << bits, down = kBlock >> bits;
    lane = static_cast<int>(threadIdx.x) & (lanes - 1), height = static_cast<int>(threadIdx.x) >> bits;
    tiles = static_cast<uint32_t>(a.tiles);
    tile = blockIdx.x % tiles, part = blockIdx.x / tiles;
    column = (static_cast<int64_t>(tile) * lanes + lane) * kWidth;
    first = static_cast<int64_t>(part) * down * kRows + height;
    step = a.parts * down * kRows;
  }
};

/// Stores a thread's columns of a row with one access. A plain one the compiler splits here into accesses of 4 bytes.
template <class T, int kWidth>
__device__ __forceinline__ void store_columns(void* data, int64_t offset, const Held<T> (&values)[kWidth]) {
  Run<Stored<T>, kWidth> run;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) run.at[e] = static_cast<Stored<T>>(values[e]);
  auto* const to = static_cast<Stored<T>*>(data) + offset;
  constexpr int kBytes = static_cast<int>(sizeof(run));
  static_assert(kBytes <= 16);
  if constexpr (kBytes == 16)
    __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(run));
  else if constexpr (kBytes == 8)
    __stwb(reinterpret_cast<float2*>(to), std::bit_cast<float2>(run));
  else
    store_run(to, run);
}

/// Adds up the sums of a block's threads that have the same columns. Those of height 0 get them.
template <int kBlock, int kWidth, int kRows>
__device__ void add_down(double (&sums)[kWidth], const ColumnPlace<kBlock, kWidth, kRows>& place) {
  __shared__ double lower[kWidth][kBlock / 2];
  for (int half = place.down / 2; half > 0; half /= 2) {
    if (place.height >= half && place.height < 2 * half) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) lower[e][static_cast<int>(threadIdx.x) - half * place.lanes] = sums[e];
    }
    __syncthreads();
    if (place.height < half) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) sums[e] += lower[e][threadIdx.x];
    }
    __syncthreads();
  }
}

/// Where the sums of a thread are among those of a part: `lanes` apart.
template <int kBlock, int kWidth, int kRows>
__device__ __forceinline__ double* part_of(double* cells, const ColumnPlace<kBlock, kWidth, kRows>& place,
                                           int64_t part) {
  return cells + (part * place.tiles + place.tile) * (place.lanes * kWidth) + place.lane;
}

template <class T, int kWidth>
__device__ __forceinline__ void put_sums(void* to, int64_t column, const double (&sums)[kWidth]) {
#pragma unroll
  for (int e = 0; e < kWidth; ++e) static_cast<T*>(to)[column + e] = cast<T, double>(sums[e]);
}

/// Leaves the sums of a block: as the results, or, if there are other parts, for the last block of the tile.
template <class T, class Sum, int kBlock, int kWidth, int kRows, class Arguments>
__device__ __forceinline__ void leave_sums(void* to, double* cells, const Sum (&sums)[kWidth],
                                           const ColumnPlace<kBlock, kWidth, kRows>& place, const Arguments& a) {
  double totals[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) totals[e] = sums[e];
  add_down(totals, place);
  if (place.height != 0 || place.column >= a.n) return;
  if (a.parts == 1) return put_sums<T>(to, place.column, totals);
  double* const cell = part_of(cells, place, place.part);
#pragma unroll
  for (int e = 0; e < kWidth; ++e) cell[e * place.lanes] = totals[e];
}

/// Adds up what the blocks of a tile have left.
template <class T, int kBlock, int kWidth, int kRows, class Arguments>
__device__ __forceinline__ void add_parts(void* to, double* cells, const ColumnPlace<kBlock, kWidth, kRows>& place,
                                          const Arguments& a) {
  double totals[kWidth] = {};
  if (place.column < a.n) {
#pragma unroll 4
    for (int part = place.height; part < static_cast<int>(a.parts); part += place.down) {
      const double* const cell = part_of(cells, place, part);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) totals[e] += __ldcg(cell + e * place.lanes);
    }
  }
  add_down(totals, place);
  if (place.height == 0 && place.column < a.n) put_sums<T>(to, place.column, totals);
}

}  // namespace lorry::kernels::cuda
