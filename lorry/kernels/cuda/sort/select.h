#pragma once

// The first k of long chunks of rows, not sorted.

#include "lorry/kernels/cuda/sort/sort_rows.h"

namespace lorry::kernels::cuda {

/// The items per chunk for a round of select_chunks with k up to kBlockItems: they occupy all multiprocessors, and
/// several chunks leave at most about half of the items.
int64_t selection_chunk(const Chunks& round, int multiprocessors);

/// Writes the positions within the row of the first k of each chunk, in the order of the items: the subset of the next
/// round. Of equal elements, the earlier ones are chosen.
void select_chunks(const Chunks& chunks, uint32_t* chosen, Stream stream);

}  // namespace lorry::kernels::cuda
