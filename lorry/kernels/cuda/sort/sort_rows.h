#pragma once

// Sorting rows that fit a block.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels::cuda {

/// The maximum number of items that one block sorts.
inline constexpr int64_t kBlockItems = 4096;

/// Rows of x in chunks. The first k of each chunk are its results.
struct Chunks {
  Array x;
  bool descending = false;
  int64_t rows = 0, length = 0;  ///< of x
  /// [rows, items]: positions in their rows. Only these count; null: all. Ties keep the order of the subset.
  const uint32_t* subset = nullptr;
  int64_t items = 0;  ///< per row
  int64_t chunk = 0;  ///< items per chunk; the last chunk of a row may be shorter
  int64_t k = 0;      ///< results per chunk

  int64_t chunks() const { return (items + chunk - 1) / chunk; }
  void addresses(auto& visit) const { visit(x.data, subset); }
  int64_t results_per_row() const {
    const int64_t last = items - (chunks() - 1) * chunk;
    return (chunks() - 1) * k + (last < k ? last : k);
  }
};

/// Sorts up to kBlockItems items of each row, whatever their chunks, and writes the first k: values and indices, [rows,
/// min(k, items)]. Null: not written.
void sort_rows(const Chunks& rows, void* values, int64_t* indices, Stream stream);

}  // namespace lorry::kernels::cuda
