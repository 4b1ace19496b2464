#pragma once

// What the attention kernels on tensor cores need of a call: which keys queries attend to, masks and dropout of a tile,
// and launches.

#include "lorry/device/cuda/capability.h"
#include "lorry/kernels/cuda/attention/attention_problem.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/fast_math.h"

namespace lorry::kernels::cuda {

/// What dropout leaves of a tile's weights: a bit for each query and key.
template <int kSide>
struct KeptWeights {
  uint32_t bits[kSide][kSide / 32];

  /// All threads must have read the old contents.
  __device__ void draw(const AttentionProblem& p, int threads, int64_t b, int64_t h, int64_t query, int64_t key) {
    constexpr int kWords = kSide / 32;
    for (int n = static_cast<int>(threadIdx.x); n < kSide * kWords; n += threads) {
      const int64_t i = query + n / kWords, j = key + n % kWords * 32;
      bits[n / kWords][n % kWords] = p.draw_kept(static_cast<uint64_t>(((b * p.heads + h) * p.t + i) * p.s + j));
    }
  }
  __device__ bool has(int query, int key) const { return (bits[query][key / 32] >> (key % 32) & 1) != 0; }
};

/// Adds the mask to a tile of scaled scores: bool, false becomes -infinity. The rows of the tile are queries (kByQuery)
/// or keys; seen: of each row, the columns that are read. query, key: the first of the tile.
template <class T, class Tile, bool kByQuery>
__device__ __forceinline__ void add_mask(const AttentionProblem& p, typename Tile::Block& scores,
                                         const Range (&seen)[Tile::kRows], int64_t b, int64_t h, int64_t query,
                                         int64_t key) {
  using C = Compute<T>;
  const int64_t row_stride = p.mask_strides[kByQuery ? 2 : 3], column_stride = p.mask_strides[kByQuery ? 3 : 2];
  const int64_t first =
      b * p.mask_strides[0] + h * p.mask_strides[1] + query * p.mask_strides[2] + key * p.mask_strides[3];
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    const int64_t row = first + Tile::row(r) * row_stride + Tile::column(0) * column_stride;
    if (p.mask_is_bool) {
      const auto* const from = static_cast<const uint8_t*>(p.mask) + row;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c)
        if (seen[r].has(Tile::column(c)) && from[(Tile::column(c) - Tile::column(0)) * column_stride] == 0)
          scores[r][c] -= std::numeric_limits<C>::infinity();
    } else {
      const auto* const from = static_cast<const T*>(p.mask) + row;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c)
        if (seen[r].has(Tile::column(c)))
          scores[r][c] += static_cast<C>(from[(Tile::column(c) - Tile::column(0)) * column_stride]);
    }
  }
}

/// The exponential of a score: 16-bit weights are rounded anyway.
template <class T>
__device__ __forceinline__ Compute<T> weight_of(Compute<T> x) {
  if constexpr (kHalf<T>)
    return fast_exp(x);
  else
    return exp(x);
}

/// Whether the device has tensor cores for these kernels.
inline bool has_tensor_cores(Stream stream) { return lorry::cuda::capability(stream.device.index) >= 80; }

/// Calls f.operator()<kColumnTiles, kPlain>() with the tiles of columns for a result of `width` columns, and whether
/// the call has neither mask nor dropout.
template <int kSide, class F>
void with_tiles(const AttentionProblem& p, int64_t width, F f) {
  const auto with = [&]<bool kPlain>() {
    width > kSide ? f.template operator()<2, kPlain>() : f.template operator()<1, kPlain>();
  };
  p.mask == nullptr && !p.drops ? with.template operator()<true>() : with.template operator()<false>();
}

/// Launches kernel(arguments..., parts) for `operands` sets of rows, the widest of `width`; parts: as Tile::parts has
/// it.
template <auto kKernel, class Tile, class... Arguments>
void launch_attention(Stream stream, int64_t blocks, int64_t columns, int operands, int64_t width,
                      const Arguments&... arguments) {
  const int64_t most = most_shared(lorry::cuda::properties(stream.device.index));
  allow_shared_once<kKernel>(stream.device.index, static_cast<size_t>(most));
  const int parts = Tile::parts(operands, width, most);
  const lorry::cuda::Shape shape{{static_cast<unsigned>(blocks), static_cast<unsigned>(columns)},
                                 {Tile::kThreads},
                                 static_cast<size_t>(Tile::shared_bytes(operands, parts))};
  lorry::cuda::launch(stream, shape, kKernel, arguments..., parts);
}

}  // namespace lorry::kernels::cuda
