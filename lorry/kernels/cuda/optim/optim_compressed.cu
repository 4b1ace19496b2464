// Compresses and decompresses arrays, a row at a time, with the functions of step_compressed.h. Bytes per element: 4 of
// f32, and 2 of bf16 or 1.02 of 8-bit codes with their scales.

#include "lorry/kernels/cuda/optim/optim.h"
#include "lorry/kernels/cuda/optim/step_compressed.h"

namespace lorry::kernels::cuda {
namespace {

/// What both directions share. Arrays: f32 values, compressed ones.
struct CompressedRows : QuantizedRows {
  static constexpr int kArrays = 2, kTile = 1'024, kRunLength = 1, kBlocks = 3;

  StateType type;
  bool is_signed;

  __device__ void open(int thread) const {
    if (type == StateType::q8) fill_tables(thread);
  }
  /// Calls f(whole, values, compressed, row, left) for every row of a tile. whole: a constant, whether the row is full
  /// and aligned. values, compressed: the addresses of the lane's first elements. row: its first element. left: how
  /// many elements of the tile there are from the lane's first one on.
  template <class F>
  __device__ __forceinline__ void rows(const Entry<kArrays>& entry, const Tile& tile, int lane, const F& f) const {
    const bool aligned =
        reinterpret_cast<uintptr_t>(entry.at[0]) % 16 == 0 && reinterpret_cast<uintptr_t>(entry.at[1]) % 8 == 0;
#pragma unroll 1
    for (int row = 0; row < tile.count; row += kBlock) {
      const int here = tile.count - row, left = here - first_of(lane);
      const int64_t first = tile.first + row;
      float* const values = static_cast<float*>(entry.at[0]) + first + first_of(lane);
      char* const compressed =
          static_cast<char*>(entry.at[1]) + (first + first_of(lane)) * (type == StateType::bf16 ? 2 : 1);
      if (aligned && here >= kBlock)
        f(std::true_type(), values, compressed, first, left);
      else
        f(std::false_type(), values, compressed, first, left);
    }
  }
};

struct Decompress : CompressedRows {
  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    rows(entry, tile, lane,
         [&]<bool kWhole>(std::bool_constant<kWhole>, float* to, const char* from, int64_t row, int left) {
           float values[kLane];
           if (type == StateType::bf16) {
             uint16_t halves[kLane];
             load<kWhole>(from, left, halves);
#pragma unroll
             for (int v = 0; v < kLane; ++v) values[v] = __uint_as_float(uint32_t{halves[v]} << 16);
           } else {
             uint8_t codes[kLane];
             load<kWhole>(from, left, codes);
             const float scale = *scale_of(entry.at[1], entry.count, row);
#pragma unroll
             for (int v = 0; v < kLane; ++v) values[v] = tables().numbers[is_signed][codes[v]] * scale;
           }
           store<kWhole>(to, left, values);
         });
  }
};

struct Compress : CompressedRows {
  const double *grad_factor, *steps;
  uint64_t seed;
  uint32_t array;
  int64_t first_element;

  void addresses(auto& visit) const { visit(grad_factor, steps); }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    if (grad_factor && *grad_factor != *grad_factor) return;
    rows(entry, tile, lane,
         [&]<bool kWhole>(std::bool_constant<kWhole>, const float* from, char* to, int64_t row, int left) {
           float values[kLane];
           load<kWhole>(from, left, values);
           if (type == StateType::bf16)
             round<kWhole>(to,
                           random_bits(seed, entry.number, array, *steps,
                                       row + (entry.first_tile == 0 ? first_element : 0), lane),
                           left, values);
           if (type == StateType::bf16) return;
           const float scale =
               is_signed ? quantise<true, kWhole>(to, left, values) : quantise<false, kWhole>(to, left, values);
           if (lane == 0) *scale_of(entry.at[1], entry.count, row) = scale;
         });
  }
};

}  // namespace

void decompress(const CompressedCall& call, const Stream& stream) {
  over_list(call.list, Decompress{{{}, call.type, call.is_signed}}, stream);
}

void compress(const CompressedCall& call, const Stream& stream) {
  over_list(
      call.list,
      Compress{
          {{}, call.type, call.is_signed}, call.grad_factor, call.steps, call.seed, call.array, call.first_element},
      stream);
}

}  // namespace lorry::kernels::cuda
