// The distinct values of a sorted row: those that differ from the one before, numbered in one pass (prefix.h).

#include "lorry/kernels/cuda/sort/unique.h"

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/host_readback.h"
#include "lorry/kernels/cuda/common/prefix.h"
#include "lorry/kernels/cuda/sort/keys.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = kPrefixThreads;
constexpr int kEach = 4;
constexpr int kTile = kThreads * kEach;

/// The outputs; inverse (with order) and starts (where each distinct value begins) may be null.
struct Results {
  void* values;
  int64_t* inverse;
  const int64_t* order;
  int64_t* starts;
  int64_t* found;

  void addresses(auto& visit) const { visit(values, inverse, order, starts, found); }
};

template <class Key>
__global__ void __launch_bounds__(kThreads)
    number_values(Results results, Keys<Key> keys, Key nan, bool has_nan, int width, int64_t n, Tiles tiles) {
  __shared__ int64_t start;
  const int64_t tile = tiles.take(), origin = tile * kTile + threadIdx.x;
  bool head[kEach];
  uint64_t counts = 0, all;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int64_t i = origin + u * kThreads;
    head[u] = false;
    if (i >= n) continue;
    const Key key = keys(i);
    head[u] = i == 0 || key != keys(i - 1) || (has_nan && key == nan);
  }
#pragma unroll
  for (int u = 0; u < kEach; ++u) counts |= static_cast<uint64_t>(head[u]) << (16 * u);
  const uint64_t before = block_prefix(counts, all);
  uint32_t total = 0, ranks[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    ranks[u] = total + count_at(before, u);
    total += count_at(all, u);
  }
  if (threadIdx.x < 32) {
    const uint64_t earlier = tiles.before(tile, total);
    if (threadIdx.x == 0) start = static_cast<int64_t>(earlier);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int64_t i = origin + u * kThreads;
    if (i >= n) continue;
    const int64_t rank = start + ranks[u];  // of the next head, this element included
    if (head[u]) {
      copy_element(results.values, rank, keys.data, i, width);
      if (results.starts != nullptr) results.starts[rank] = i;
    }
    if (results.inverse != nullptr) results.inverse[results.order[i]] = head[u] ? rank : rank - 1;
    if (i == n - 1) *results.found = head[u] ? rank + 1 : rank;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_values(int64_t* counts, const int64_t* starts, int64_t found, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < found) counts[i] = (i + 1 < found ? starts[i + 1] : n) - starts[i];
}

}  // namespace

int64_t unique(const Array& values, const Array& inverse, const Array& counts, const Array& sorted, const Array& order,
               const Stream& stream) {
  const int64_t n = sorted.numel(), tiles = (n + kTile - 1) / kTile;
  if (n == 0) return 0;
  HostReadback readback(stream);
  const Scratch starts(counts.data == nullptr ? 0 : n * static_cast<int64_t>(sizeof(int64_t)), stream);
  const TileMemory memory(tiles, stream);
  const Results results{values.data, inverse.as<int64_t>(), order.as<const int64_t>(), starts.as<int64_t>(),
                        readback.words()};
  visit_key(sorted.dtype, [&]<class Key>(Type<Key>) {
    // A NaN differs from itself; its key is the highest.
    const Key nan = static_cast<Key>(~Key(0) >> (8 * sizeof(Key) - key_bits(sorted.dtype)));
    lorry::cuda::launch(stream, {static_cast<unsigned>(tiles), kThreads}, number_values<Key>, results,
                        Keys<Key>(sorted, false), nan, is_floating(sorted.dtype), size_of(sorted.dtype), n,
                        memory.tiles());
  });
  const int64_t found = *readback.wait();
  if (counts.data != nullptr)
    lorry::cuda::launch(stream, {static_cast<unsigned>((found + kThreads - 1) / kThreads), kThreads}, count_values,
                        counts.as<int64_t>(), starts.as<const int64_t>(), found, n);
  return found;
}

}  // namespace lorry::kernels::cuda
