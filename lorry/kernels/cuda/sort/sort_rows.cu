#include "lorry/kernels/cuda/sort/sort_rows.h"

#include <algorithm>
#include <cub/block/block_radix_sort.cuh>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/sort/keys.h"

namespace lorry::kernels::cuda {
namespace {

/// The outputs for a sorted chunk; null ones are not written.
struct Results {
  void* values;
  int64_t* indices;
  uint32_t* chosen;

  void addresses(auto& visit) const { visit(values, indices, chosen); }
};

/// One block per chunk: keys in registers, a stable radix sort through shared memory. Blocks run over the chunks of all
/// rows.
template <class Key, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) sort_in_blocks(Results results, Keys<Key> keys, Chunks p, int64_t chunks,
                                                           int64_t results_per_row, int bits, int width) {
  using Sort = cub::BlockRadixSort<Key, kThreads, kItems, uint16_t>;
  __shared__ typename Sort::TempStorage storage;
  for (int64_t block = blockIdx.x; block < p.rows * chunks; block += gridDim.x) {
    const int64_t row = chunks == 1 ? block : block / chunks, first = (block - row * chunks) * p.chunk;
    const int count = static_cast<int>(min(p.chunk, p.items - first));
    const uint32_t* const subset = p.subset == nullptr ? nullptr : p.subset + row * p.items + first;
    const auto position = [&](int item) {
      return subset == nullptr ? first + item : static_cast<int64_t>(subset[item]);
    };
    Key key[kItems];
    uint16_t item[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      item[u] = static_cast<uint16_t>(threadIdx.x * kItems + u);
      // Padding comes last, after equal keys of the chunk.
      key[u] = item[u] < count ? keys(row * p.length + position(item[u])) : ~Key(0);
    }
    Sort(storage).SortBlockedToStriped(key, item, 0, bits);
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const int rank = u * kThreads + static_cast<int>(threadIdx.x);
      if (rank >= p.k || rank >= count) continue;
      const int64_t from = position(item[u]), to = row * results_per_row + first / p.chunk * p.k + rank;
      if (results.chosen != nullptr) results.chosen[to] = static_cast<uint32_t>(from);
      if (results.indices != nullptr) results.indices[to] = from;
      if (results.values != nullptr) copy_element(results.values, to, keys.data, row * p.length + from, width);
    }
    __syncthreads();  // the storage is reused for the next chunk
  }
}

template <class Key, int kThreads, int kItems>
void run(const Chunks& p, const Results& results, Stream stream) {
  const int64_t chunks = p.chunks();
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.rows * chunks, INT32_MAX));
  lorry::cuda::launch(stream, {blocks, kThreads}, sort_in_blocks<Key, kThreads, kItems>, results,
                      Keys<Key>(p.x, p.descending), p, chunks, p.results_per_row(), key_bits(p.x.dtype),
                      size_of(p.x.dtype));
}

void run(const Chunks& p, const Results& results, Stream stream) {
  if (p.rows * p.items == 0) return;
  visit_key(p.x.dtype, [&]<class Key>(Type<Key>) {
    if (p.chunk <= 128) return run<Key, 32, 4>(p, results, stream);
    if (p.chunk <= 1024) return run<Key, 128, 8>(p, results, stream);
    run<Key, 512, 8>(p, results, stream);
  });
}

}  // namespace

void sort_chunks(const Chunks& chunks, void* values, int64_t* indices, Stream stream) {
  run(chunks, {values, indices, nullptr}, stream);
}
void sort_chunks(const Chunks& chunks, uint32_t* chosen, Stream stream) {
  run(chunks, {nullptr, nullptr, chosen}, stream);
}

}  // namespace lorry::kernels::cuda
