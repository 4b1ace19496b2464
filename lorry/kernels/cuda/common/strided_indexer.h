#pragma once

// Maps a linear position to each operand's offset in a kernel. Holds the strides of an Iteration by value; for
// positions of 32 bits, divisions are multiplications.

#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "lorry/kernels/cuda/common/divider.h"
#include "lorry/layout/layout.h"

namespace lorry::kernels::cuda {

/// The offsets of `kOperands` operands. Index is uint32_t if positions and offsets are below 2^31, else int64_t.
template <int kOperands, class Index>
struct StridedIndexer {
  static constexpr bool kNarrow = sizeof(Index) == 4;
  int rank;
  std::conditional_t<kNarrow, Divider, WideDivider> sizes[kMaxRank];
  Index strides[kOperands][kMaxRank];

  void addresses(auto& visit) const { visit(); }

  explicit StridedIndexer(const Iteration& it) : rank(it.rank) {
    for (int d = 0; d < kMaxRank; ++d) {
      if (d < rank) sizes[d] = std::conditional_t<kNarrow, Divider, WideDivider>(it.sizes[d]);
      for (int k = 0; k < kOperands; ++k) strides[k][d] = d < rank ? static_cast<Index>(it.strides[k][d]) : 0;
    }
  }

  /// Computes offsets[k] of the element at row-major position `n` of the iteration (dimension 0 is the innermost).
  LORRY_HOST_DEVICE void operator()(Index n, Index (&offsets)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) offsets[k] = 0;
#pragma unroll
    for (int d = 0; d < kMaxRank; ++d) {
      if (d == rank) break;
      const Index next = d + 1 == rank ? 0 : static_cast<Index>(sizes[d](n));
      const Index at = d + 1 == rank ? n : static_cast<Index>(n - next * sizes[d].divisor);
      for (int k = 0; k < kOperands; ++k) offsets[k] += at * strides[k][d];
      n = next;
    }
  }
};

/// Whether positions and every offset of the iteration fit 31 bits.
inline bool fits_narrow(const Iteration& it) {
  if (it.numel() > INT32_MAX) return false;
  for (int k = 0; k < it.operands; ++k) {
    int64_t extent = 0;
    for (int d = 0; d < it.rank; ++d) extent += (it.sizes[d] - 1) * std::abs(it.strides[k][d]);
    if (extent > INT32_MAX) return false;
  }
  return true;
}

}  // namespace lorry::kernels::cuda
