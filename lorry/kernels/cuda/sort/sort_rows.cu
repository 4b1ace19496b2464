#include "lorry/kernels/cuda/sort/sort_rows.h"

#include <algorithm>
#include <cub/block/block_radix_sort.cuh>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/sort/keys.h"

namespace lorry::kernels::cuda {
namespace {

/// One block per row: keys in registers, a stable radix sort through shared memory.
template <class Key, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads)
    sort_in_blocks(void* values, int64_t* indices, Keys<Key> keys, Chunks p, int64_t results_per_row, int bits) {
  lorry::cuda::begin_programmatic();
  using Sort = cub::BlockRadixSort<Key, kThreads, kItems, uint16_t>;
  __shared__ typename Sort::TempStorage storage;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const uint32_t* const subset = p.subset == nullptr ? nullptr : p.subset + row * p.items;
    const auto position = [&](int item) -> int64_t { return subset == nullptr ? item : subset[item]; };
    Key key[kItems];
    uint16_t item[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      item[u] = static_cast<uint16_t>(threadIdx.x * kItems + u);
      // Padding comes last, after equal keys of the row.
      key[u] = item[u] < p.items ? keys(row * p.length + position(item[u])) : ~Key(0);
    }
    Sort(storage).SortBlockedToStriped(key, item, 0, bits);
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const int rank = u * kThreads + static_cast<int>(threadIdx.x);
      if (rank >= results_per_row) continue;
      const int64_t from = position(item[u]), to = row * results_per_row + rank;
      if (indices != nullptr) indices[to] = from;
      if (values != nullptr) copy_element(values, to, keys.data, row * p.length + from, keys.dtype);
    }
    __syncthreads();  // the storage is reused for the next row
  }
}

template <class Key, int kThreads, int kItems>
void run(const Chunks& p, void* values, int64_t* indices, Stream stream) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.rows, INT32_MAX));
  lorry::cuda::launch(stream, {blocks, kThreads}, sort_in_blocks<Key, kThreads, kItems>, values, indices,
                      Keys<Key>(p.x, p.descending), p, std::min(p.k, p.items), key_bits(p.x.dtype));
}

}  // namespace

void sort_rows(const Chunks& p, void* values, int64_t* indices, Stream stream) {
  if (p.rows * p.items == 0) return;
  visit_key(p.x.dtype, [&]<class Key>(Type<Key>) {
    if (p.items <= 128) return run<Key, 32, 4>(p, values, indices, stream);
    if (p.items <= 1024) return run<Key, 128, 8>(p, values, indices, stream);
    run<Key, 512, 8>(p, values, indices, stream);
  });
}

}  // namespace lorry::kernels::cuda
