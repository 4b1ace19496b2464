// Arrays between f32 and the form in which they are stored, a row a warp: what step_stored.h does on its way.

#include "lorry/kernels/cuda/optim.h"
#include "lorry/kernels/cuda/step_stored.h"

namespace lorry::kernels::cuda {
namespace {

/// What both directions have. `array` is the stored form, `values` f32.
struct StoredRows : Rows {
  static constexpr int kArrays = 2, kTile = 1'024, kRunLength = 1, kBlocks = 3;

  StateType type;
  bool is_signed;

  __device__ void open(int thread) const {
    if (type == StateType::q8) fill_tables(thread);
  }
  /// Calls f(whole, row, here) for every row of a tile; `whole` is a constant.
  template <class F>
  __device__ __forceinline__ void rows(const Entry<kArrays>& entry, const Tile& tile, const F& f) const {
    const bool aligned = reinterpret_cast<uintptr_t>(entry.at[0]) % 16 == 0 && reinterpret_cast<uintptr_t>(entry.at[1]) % 8 == 0;
#pragma unroll 1
    for (int row = 0; row < tile.count; row += kBlock) {
      const int here = tile.count - row;
      if (aligned && here >= kBlock)
        f(std::true_type(), tile.first + row, kBlock);
      else
        f(std::false_type(), tile.first + row, here);
    }
  }
};

struct LoadStored : StoredRows {
  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    rows(entry, tile, [&]<bool kWhole>(std::bool_constant<kWhole>, int64_t row, int here) {
      float values[kLane];
      if (type == StateType::bf16) {
        uint16_t halves[kLane];
        load<kWhole>(entry.at[1], row, here, lane, halves);
#pragma unroll
        for (int v = 0; v < kLane; ++v) values[v] = __uint_as_float(uint32_t{halves[v]} << 16);
      } else {
        uint8_t codes[kLane];
        load<kWhole>(entry.at[1], row, here, lane, codes);
        const float scale = reinterpret_cast<const float*>(static_cast<const char*>(entry.at[1]) + formula::quant_scales_at(entry.count))[row / kBlock];
#pragma unroll
        for (int v = 0; v < kLane; ++v) values[v] = tables().numbers[is_signed][codes[v]] * scale;
      }
      store<kWhole>(entry.at[0], row, here, lane, values);
    });
  }
};

struct StoreStored : StoredRows {
  const double *grad_factor, *steps;
  uint64_t seed;
  uint32_t array;
  int64_t first_element;

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    if (grad_factor && *grad_factor != *grad_factor) return;
    rows(entry, tile, [&]<bool kWhole>(std::bool_constant<kWhole>, int64_t row, int here) {
      float values[kLane];
      load<kWhole>(entry.at[0], row, here, lane, values);
      char* const at = static_cast<char*>(entry.at[1]);
      if (type == StateType::bf16)
        round<kWhole>(at, dice(seed, entry.number, array, *steps, row + (entry.first_tile == 0 ? first_element : 0), lane), row, here, lane, values);
      else if (is_signed)
        quantise<true, kWhole>(at, entry.count, row, here, lane, values);
      else
        quantise<false, kWhole>(at, entry.count, row, here, lane, values);
    });
  }
};

}  // namespace

void load_stored(const StoredCall& call, const Stream& stream) { over_list(call.list, LoadStored{{{}, call.type, call.is_signed}}, stream); }

void store_stored(const StoredCall& call, const Stream& stream) {
  over_list(call.list, StoreStored{{{}, call.type, call.is_signed}, call.grad_factor, call.steps, call.seed, call.array, call.first_element}, stream);
}

}  // namespace lorry::kernels::cuda
