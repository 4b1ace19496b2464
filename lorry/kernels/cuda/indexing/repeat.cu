// Repeats each position by its count: computes the running sums of the counts, then for each output the first position
// whose sum exceeds its index.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/prefix.h"
#include "lorry/kernels/cuda/indexing/indexing.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = kPrefixThreads;
constexpr int kEach = 4;
constexpr int64_t kTile = kThreads * kEach;

/// ends[i] = counts[0] + ... + counts[i].
__global__ void __launch_bounds__(kThreads) sum_up(int64_t* ends, const int64_t* counts, int64_t n, Tiles tiles) {
  lorry::cuda::begin_programmatic();
  __shared__ uint64_t start;
  const int64_t tile = tiles.take(), first = tile * kTile + threadIdx.x * kEach;
  uint64_t sums[kEach], mine = 0, all;
#pragma unroll
  for (int u = 0; u < kEach; ++u) sums[u] = mine += first + u < n ? static_cast<uint64_t>(counts[first + u]) : 0;
  const uint64_t before = block_prefix(mine, all);
  if (threadIdx.x < 32) {
    const uint64_t earlier = tiles.before(tile, all);
    if (threadIdx.x == 0) start = earlier;
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (first + u < n) ends[first + u] = static_cast<int64_t>(start + before + sums[u]);
}

__global__ void __launch_bounds__(kThreads)
    fill_positions(int64_t* out, int64_t total, const int64_t* ends, int64_t n) {
  lorry::cuda::begin_programmatic();
  const int64_t place = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place >= total) return;
  int64_t low = 0, high = n - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (ends[middle] > place) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  out[place] = low;
}

}  // namespace

void repeat_positions(const Array& out, const Array& counts, Stream stream) {
  const int64_t total = out.numel(), n = counts.numel(), tiles = (n + kTile - 1) / kTile;
  if (total == 0) return;
  const Scratch ends(n * static_cast<int64_t>(sizeof(int64_t)), stream);
  const TileMemory memory(tiles, stream);
  lorry::cuda::launch(stream, {static_cast<unsigned>(tiles), kThreads}, sum_up, ends.as<int64_t>(),
                      counts.as<const int64_t>(), n, memory.tiles());
  lorry::cuda::launch(stream, {static_cast<unsigned>((total + kThreads - 1) / kThreads), kThreads}, fill_positions,
                      out.as<int64_t>(), total, ends.as<const int64_t>(), n);
}

}  // namespace lorry::kernels::cuda
