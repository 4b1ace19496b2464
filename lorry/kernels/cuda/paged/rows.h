#pragma once

// The rows of a batch in a paged cache, as kernels see them.

#include "lorry/base/error.h"
#include "lorry/base/modes.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/divider.h"
#include "lorry/kernels/paged.h"

namespace lorry::kernels::cuda {

/// PagedRows on the device.
struct CachedRows {
  const int32_t *table, *slots, *positions;
  int32_t n, sequences, per_sequence, blocks, capacity;  ///< capacity: of a sequence, in positions
  Divider by_block;
  lorry::cuda::AssertSite site;

  void addresses(auto& visit) const { visit(table, slots, positions); }

  /// The position of a row; -1 if the row is padding or does not exist. Threads that `speak` report the latter.
  __device__ __forceinline__ int32_t position(int32_t row, bool speak) const {
    const int32_t slot = slots[row], position = positions[row];
    if (slot < 0) return -1;
    if (slot >= sequences) {
      if (speak) site.report(lorry::cuda::DeviceAssert::index, slot, 0, sequences);
      return -1;
    }
    if (position >= 0 && position < capacity) return position;
    if (speak) site.report(lorry::cuda::DeviceAssert::index, position, 0, capacity);
    return -1;
  }
  /// The block of a position of the row's sequence; -1 if there is none.
  __device__ __forceinline__ int32_t block(int32_t row, int32_t number, bool speak) const {
    const int32_t block = table[int64_t{slots[row]} * per_sequence + number];
    if (block >= 0 && block < blocks) return block;
    if (speak) site.report(lorry::cuda::DeviceAssert::index, block, 0, blocks);
    return -1;
  }
};

/// Kernels count in 32 bits.
inline int32_t narrow_size(int64_t size) {
  require<ShapeError>(size <= INT32_MAX, "too large for cuda; got {}; expected at most {}", size, INT32_MAX);
  return static_cast<int32_t>(size);
}

inline CachedRows rows_of(const PagedRows& rows, const Array& cache, Stream stream) {
  return {.table = rows.block_table.as<const int32_t>(),
          .slots = rows.slots.as<const int32_t>(),
          .positions = rows.positions.as<const int32_t>(),
          .n = narrow_size(rows.slots.numel()),
          .sequences = narrow_size(rows.block_table.size(0)),
          .per_sequence = narrow_size(rows.block_table.size(1)),
          .blocks = narrow_size(cache.size(0)),
          .capacity = narrow_size(rows.block_table.size(1) * cache.size(1)),
          .by_block = Divider(narrow_size(cache.size(1))),
          .site = lorry::cuda::AssertSite(stream.device.index, running_or("paged attention"))};
}

/// paged_write.cu.
void paged_write(const PagedWrite& args, Stream stream);

}  // namespace lorry::kernels::cuda
