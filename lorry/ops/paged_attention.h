#pragma once

// Attention for generation: a flat batch of tokens of several sequences, whose keys and values lie in blocks of a cache
// (Kwon et al. 2023, PagedAttention). What changes from step to step is read from tensors on the device, so a captured
// step can be replayed.
//
// In both operators row i of the batch is position positions[i] of the sequence in slot slots[i]; a negative slot marks
// a padding row. Position p of slot s is row p % block_size of block block_table[s, p / block_size]. slots, positions:
// [n] i32; block_table: [sequences, max_blocks] i32; entries behind those that are needed may be anything.
//
// A slot, position or block that does not exist: on the CPU an IndexError, before anything is written. On a GPU the
// next call throws it; such a row is not written, and such a key takes no part.

#include <optional>

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Stores k and v of the rows in the caches, in place; padding rows are skipped. If rows name one position twice, one
/// of them is stored.
/// k_cache, v_cache: [blocks, block_size, heads, d]; k, v: [n, heads, d]; one floating dtype, any strides.
/// Throws ShapeError, DTypeError, DeviceError, IndexError, ValueError, and GradError if a gradient would be needed.
void paged_write(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v,
                 const Tensor& block_table, const Tensor& slots, const Tensor& positions);

/// softmax(scale * q k^T) v for each head of each row, over the keys 0 to positions[i] of its sequence. Padding rows
/// give 0. The bits of a row depend on its query, position, keys and values alone: not on n, on other rows, on where in
/// the batch or in the cache it lies, or on how its sequence was divided into calls.
/// q: [n, heads, d]; k_cache, v_cache: [blocks, block_size, kv_heads, d]; one floating dtype; heads is a multiple of
/// kv_heads, and neighbouring heads share one. scale: 1 / sqrt(d) when absent. Returns [n, heads, d]. Computed in f32,
/// or f64 for f64. On a GPU d is at most 512. Operands are read where they lie if their last stride is 1 and both
/// caches have equal strides.
/// Throws ShapeError, DTypeError, DeviceError, IndexError, ValueError, and GradError if a gradient would be needed.
/// Vaswani et al. 2017, eq. 1; keys in splits with a running maximum: Dao et al. 2023 (Flash-Decoding).
Tensor paged_attention(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& block_table,
                       const Tensor& slots, const Tensor& positions, std::optional<double> scale = {});

}  // namespace lorry
