#pragma once

// Writes along one dimension without sorting. If one dimension is bound and there are no columns, the coordinates of
// all other dimensions divide the target into *lines*, and no two lines have an order's key in common (put.cu explains
// the terms). A warp takes a line. It holds the target's elements in shared memory and combines 32 orders at a time;
// those with equal positions are combined one after another, so that every element sees its orders in sequence. Bytes
// moved: index and source once, the target's lines twice.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/wide_indexer.h"
#include "lorry/kernels/cuda/indexing/put.h"

namespace lorry::kernels::cuda {

/// The maximum number of lines of a block, and of bytes that they hold.
inline constexpr int64_t kMostLines = 8, kLineBytes = 64 << 10;
/// The number of orders that a lane loads at once.
inline constexpr int kLineOrders = 4;

/// The words of shared memory for a line of so many bytes.
LORRY_HOST_DEVICE constexpr int64_t line_words(int64_t bytes) {
  return (bytes + int64_t{sizeof(uint4)} - 1) / int64_t{sizeof(uint4)};
}

/// The rule of an assignment: the last order replaces the others.
template <class T>
struct Assigning {
  using Value = T;
  __device__ __forceinline__ static Value read(const T* from) { return *from; }
};

/// Rule: `Assigning`, or as for combine_elements (put_orders.h). Operands of `starts`: target, source, index.
template <class T, class Rule>
__global__ void __launch_bounds__(32 * kMostLines)
    combine_lines(T* target, const T* source, const int64_t* index, LineShape shape, WideIndexer<3> starts,
                  IndexBounds positions, Rule rule) {
  lorry::cuda::begin_programmatic();
  constexpr unsigned kAllLanes = ~0u;
  extern __shared__ uint4 lines[];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t line = int64_t{blockIdx.x} * (blockDim.x / 32) + warp;
  if (line >= shape.count) return;  // whole warps: the kernel has no barrier
  int64_t at[3];
  starts(line, at);
  target += at[0];
  source += at[1];
  index += at[2];
  T* const held = reinterpret_cast<T*>(lines + warp * line_words(positions.size * int64_t{sizeof(T)}));
  const int size = static_cast<int>(positions.size);
#pragma unroll 8
  for (int i = lane; i < size; i += 32) held[i] = target[i * shape.step];
  __syncwarp();
  for (int64_t first = lane; first - lane < shape.length; first += 32 * kLineOrders) {
    int64_t place[kLineOrders];
    typename Rule::Value come[kLineOrders];
#pragma unroll
    for (int u = 0; u < kLineOrders; ++u) {
      const int64_t i = first + 32 * u;
      if (i >= shape.length) continue;
      place[u] = index[i * shape.index_stride];
      come[u] = rule.read(source + i * shape.source_stride);
    }
#pragma unroll
    for (int u = 0; u < kLineOrders; ++u) {
      const int here = first + 32 * u < shape.length ? static_cast<int>(positions(place[u])) : -1;
      const unsigned peers = __match_any_sync(kAllLanes, here);
      if constexpr (std::is_same_v<Rule, Assigning<T>>) {
        if (here >= 0 && peers >> lane == 1) held[here] = come[u];  // the last of its peers
      } else {
        const int turn = here >= 0 ? __popc(peers & ((1u << lane) - 1)) : -1;
        for (int t = 0; __any_sync(kAllLanes, turn >= t); ++t) {
          if (turn == t) {
            auto value = rule.begin(held + here);
            rule.combine(value, come[u]);
            rule.end(value, held + here);
          }
          __syncwarp();
        }
      }
      __syncwarp();
    }
  }
#pragma unroll 8
  for (int i = lane; i < size; i += 32) target[i * shape.step] = held[i];
}

template <class T, class Rule>
void launch_lines(const PutArgs& args, const PutLines& l, const Rule& rule, Stream stream) {
  const int64_t words = line_words(args.size * int64_t{sizeof(T)});
  const int64_t warps = std::min(kMostLines, kLineBytes / int64_t{sizeof(uint4)} / words),
                blocks = (l.shape.count + warps - 1) / warps;
  allow_shared_once<combine_lines<T, Rule>>(stream.device.index, kLineBytes);
  lorry::cuda::launch(stream,
                      {static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps),
                       static_cast<size_t>(warps * words) * sizeof(uint4)},
                      combine_lines<T, Rule>, args.target.as<T>(), args.source.as<const T>(),
                      args.index.as<const int64_t>(), l.shape, WideIndexer<3>(l.starts), IndexBounds(args, stream),
                      rule);
}

}  // namespace lorry::kernels::cuda
