#pragma once

// What the attention kernels on tensor cores share: which calls they compute, and their launches.

#include "lorry/device/cuda/capability.h"
#include "lorry/kernels/cuda/attention/attention_problem.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/fast_math.h"

namespace lorry::kernels::cuda {

/// The exponential of a score: 16-bit weights are rounded anyway.
template <class T>
__device__ __forceinline__ Compute<T> weight_of(Compute<T> x) {
  if constexpr (kHalf<T>)
    return fast_exp(x);
  else
    return exp(x);
}

/// Whether these kernels compute the call. They know neither masks nor dropout.
inline bool suits_tensor_cores(const AttentionArgs& args, Stream stream) {
  return args.q.dtype != kF64 && args.mask.data == nullptr && args.dropout == 0 &&
         lorry::cuda::capability(stream.device.index) >= 80;
}

/// Calls f.operator()<kColumnTiles>() with the tiles of columns for a result of `width` columns.
template <int kSide, class F>
void with_column_tiles(int64_t width, F f) {
  width > kSide ? f.template operator()<2>() : f.template operator()<1>();
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
