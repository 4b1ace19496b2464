#pragma once

// Attention over keys and values that lie in the blocks of a paged cache (Kwon et al. 2023).

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// Where a flat batch of tokens lies in the cache. Row i is position `positions[i]` of the sequence in slot `slots[i]`;
/// a negative slot marks a padding row. Position p of slot s is row p % block_size of block
/// block_table[s, p / block_size]. All i32 and contiguous.
struct PagedRows {
  Array block_table;       ///< [sequences, max_blocks]
  Array slots, positions;  ///< [n]
};

/// Stores the keys and values of a batch. All of one floating dtype.
struct PagedWrite {
  Array k_cache, v_cache;  ///< [blocks, block_size, heads, d], any strides
  Array k, v;              ///< [n, heads, d], any strides
  PagedRows rows;
};

/// out = softmax(scale * q k^T) v over the keys 0 to positions[i] of a row's sequence, 0 for a padding row. All of one
/// floating dtype, the last stride of q and of the caches is 1.
struct PagedAttention {
  Array out;               ///< contiguous [n, heads, d]
  Array q;                 ///< [n, heads, d]
  Array k_cache, v_cache;  ///< [blocks, block_size, kv_heads, d], with equal strides; heads a multiple of kv_heads
  PagedRows rows;
  double scale = 1;
};

/// A slot, a position or a block that is needed and does not exist: the CPU throws IndexError before it writes
/// anything. CUDA reports it (device/cuda/device_assert.h), leaves out the write, and treats keys in a missing block as
/// absent.
struct PagedKernels {
  void (*write)(const PagedWrite&, Stream);
  /// The bits of a row depend on its query, position, keys and values alone.
  void (*attention)(const PagedAttention&, Stream);
};

}  // namespace lorry::kernels
