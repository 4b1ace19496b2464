// Assigns the last of a few orders that are long rows, with one launch. A block writes a tile of all elements. It loads
// its part of the source, compares the few orders in its tile with all later ones, and stores the elements of those
// that no later order replaces. Bytes moved: the source and the target's rows once, and half of the index per tile,
// from the second-level cache.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/indexing/put.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;
constexpr int64_t kTile = kThreads * kEach;
/// The maximum number of orders in a tile, and of keys that all blocks load.
constexpr int64_t kTileOrders = 16, kMostKeys = 4 << 20;

/// Operands of `offsets`: target, source, index. An order has `width` words, one after the other.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    put_rows(Word* target, const Word* source, const int64_t* index, uint32_t count, Divider width, uint32_t n,
             int64_t step, StridedIndexer<3, uint32_t> offsets, OrderKeys<uint32_t, uint32_t> keys) {
  lorry::cuda::begin_programmatic();
  __shared__ uint32_t own[kTileOrders];
  __shared__ int64_t positions[kTileOrders];  // of the target's row; -1: another order replaces it, or there is none
  const uint32_t base = blockIdx.x * static_cast<uint32_t>(kTile), end = min(n, base + static_cast<uint32_t>(kTile)),
                 first = width(base), orders = width(end - 1) + 1 - first, thread = threadIdx.x;
  uint32_t at[kEach][3];
  Word words[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const uint32_t i = base + u * kThreads + thread;
    if (i >= end) continue;
    offsets(i, at[u]);
    words[u] = source[at[u][1]];
  }
  if (thread < orders) {
    uint32_t start[3];
    offsets((first + thread) * width.divisor, start);
    own[thread] = keys(first + thread);
    positions[thread] = own[thread] == keys.nowhere ? -1 : keys.positions.find(index[start[2]]);
  }
  __syncthreads();
  for (uint32_t i = first + 1 + thread; i < count; i += kEach * kThreads) {
    uint32_t later[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) later[u] = i + u * kThreads < count ? keys.quiet(i + u * kThreads) : keys.nowhere;
    for (uint32_t k = 0; k < orders; ++k)
#pragma unroll
      for (int u = 0; u < kEach; ++u)
        if (later[u] == own[k] && i + u * kThreads > first + k) positions[k] = -1;
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const uint32_t i = base + u * kThreads + thread;
    if (i >= end) continue;
    const int64_t position = positions[width(i) - first];
    if (position >= 0) target[at[u][0] + position * step] = words[u];
  }
}

/// The number of elements of an order, if the elements of each order follow each other and the orders are in their
/// sequence; else 0. Operand 3 of the iteration is the number of the order.
int64_t row_width(const Iteration& it) {
  int64_t width = 1, orders = 1;
  int d = 0;
  for (; d < it.rank && it.strides[3][d] == 0; ++d) width *= it.sizes[d];
  for (; d < it.rank; ++d) {
    if (it.strides[3][d] != orders) return 0;
    orders *= it.sizes[d];
  }
  return width;
}

}  // namespace

bool put_last(const PutArgs& args, const PutPlan& p, Stream stream) {
  const PutWords words(args, p);
  const Iteration& it = words.it;
  const int64_t n = it.numel(), width = row_width(it), tiles = (n + kTile - 1) / kTile;
  if (width < kTile / (kTileOrders - 2) + 1 || tiles * p.count > kMostKeys || !fits_narrow(it)) return false;
  visit_word(words.bytes, [&]<class Word>(Type<Word>) {
    lorry::cuda::launch(stream, {static_cast<unsigned>(tiles), kThreads}, put_rows<Word>, args.target.as<Word>(),
                        args.source.as<const Word>(), args.index.as<const int64_t>(), static_cast<uint32_t>(p.count),
                        Divider(width), static_cast<uint32_t>(n), words.step, StridedIndexer<3, uint32_t>(it),
                        OrderKeys<uint32_t, uint32_t>(args, p, stream));
  });
  return true;
}

}  // namespace lorry::kernels::cuda
