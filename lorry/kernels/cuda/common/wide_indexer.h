#pragma once

// Maps a linear position of any size to each operand's offset. Unlike StridedIndexer it does not limit a kernel to 31
// bits: offsets have 64 bits, and positions of more than 31 bits are divided by the slow instruction. For kernels that
// compute offsets once per row.

#include "lorry/kernels/cuda/common/strided_indexer.h"

namespace lorry::kernels::cuda {

/// kDivides: positions may be 2^31 or more and must then be divided among several dimensions.
template <int kOperands, bool kDivides = true>
struct WideIndexer {
  int32_t rank = 0;
  bool wide = false;  ///< positions may be 2^31 or more
  Divider dividers[kMaxRank] = {};
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kOperands][kMaxRank] = {};

  void addresses(auto& visit) const { visit(); }

  /// The iteration's dimensions from `first` on, with dimension `first` as the innermost. None may be empty.
  explicit WideIndexer(const Iteration& it, int first = 0) {
    int64_t positions = 1;
    for (int d = first; d < it.rank; ++d) {
      sizes[rank] = it.sizes[d];
      positions *= it.sizes[d];
      for (int k = 0; k < kOperands; ++k) strides[k][rank] = it.strides[k][d];
      ++rank;
    }
    wide = kDivides && positions > INT32_MAX;
    for (int d = 0; d + 1 < rank && !wide; ++d) dividers[d] = Divider(sizes[d]);
  }

  LORRY_HOST_DEVICE void operator()(int64_t n, int64_t (&offsets)[kOperands]) const {
    if (rank == 1) {  // one product: loads wait for the offset
      for (int k = 0; k < kOperands; ++k) offsets[k] = n * strides[k][0];
      return;
    }
    for (int k = 0; k < kOperands; ++k) offsets[k] = 0;
#pragma unroll 1  // unrolled, it would be most of the kernel's code
    for (int d = 0; d < rank; ++d) {
      int64_t at = n;
      if (d + 1 < rank) {  // the rest is the index of the outermost dimension
        n = kDivides && wide ? n / sizes[d] : static_cast<int64_t>(dividers[d](static_cast<uint32_t>(n)));
        at -= n * sizes[d];
      }
      for (int k = 0; k < kOperands; ++k) offsets[k] += at * strides[k][d];
    }
  }
};

}  // namespace lorry::kernels::cuda
