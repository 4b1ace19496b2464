#pragma once

// Sorting what fits a block.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels::cuda {

/// The most that one block sorts.
inline constexpr int64_t kBlockItems = 4096;

/// Chunks of rows of x, each sorted by one block; of each the first k are kept.
struct Chunks {
  Array x;
  bool descending = false;
  int64_t rows = 0, length = 0;  ///< of x
  const uint32_t* subset =
      nullptr;        ///< [rows, items] positions within their rows, instead of all; of equals the first comes first
  int64_t items = 0;  ///< a row
  int64_t chunk = 0;  ///< items a chunk, at most kBlockItems; a row's last may be shorter
  int64_t k = 0;

  int64_t chunks() const { return (items + chunk - 1) / chunk; }
  void addresses(auto& visit) const { visit(x.data, subset); }
  /// What is kept of a row.
  int64_t kept() const {
    const int64_t last = items - (chunks() - 1) * chunk;
    return (chunks() - 1) * k + (last < k ? last : k);
  }
};

/// values and indices [rows, kept].
void sort_chunks(const Chunks& chunks, void* values, int64_t* indices, Stream stream);
/// Only the positions within the row, as the next round's subset.
void sort_chunks(const Chunks& chunks, uint32_t* chosen, Stream stream);

}  // namespace lorry::kernels::cuda
