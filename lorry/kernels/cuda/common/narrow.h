#pragma once

// Splits iterations that exceed 31 bits into parts that fit, so that no kernel needs 64-bit positions. A launch of 2^30
// elements hides the cost of the next launch.

#include <algorithm>

#include "lorry/kernels/cuda/common/strided_indexer.h"

namespace lorry::kernels::cuda {

/// Calls f(part, starts) for parts of the iteration that together cover it; each fits 31 bits. Operand k of a part
/// begins starts[k] elements after the operand's beginning.
template <class F>
void for_each_narrow(const Iteration& it, const int64_t* starts, const F& f) {
  if (fits_narrow(it)) [[likely]]
    return f(it, starts);
  // The dimension with the largest extent. It is longer than 1; otherwise everything would fit.
  int widest = 0;
  int64_t furthest = -1;
  for (int d = 0; d < it.rank; ++d) {
    int64_t reach = it.sizes[d];
    for (int k = 0; k < it.operands; ++k) reach = std::max(reach, (it.sizes[d] - 1) * std::abs(it.strides[k][d]));
    if (it.sizes[d] > 1 && reach > furthest) widest = d, furthest = reach;
  }
  // halves of long dimensions are split at multiples of it, so they keep the alignment of the whole
  constexpr int64_t kAligned = 1024;
  const int64_t half = it.sizes[widest] / 2;
  const int64_t first = half > kAligned ? half / kAligned * kAligned : half;
  Iteration part = it;
  part.sizes[widest] = first;
  for_each_narrow(part, starts, f);
  int64_t moved[kMaxOperands];
  for (int k = 0; k < it.operands; ++k) moved[k] = starts[k] + first * it.strides[k][widest];
  part.sizes[widest] = it.sizes[widest] - first;
  for_each_narrow(part, moved, f);
}

template <class F>
void for_each_narrow(const Iteration& it, const F& f) {
  constexpr int64_t kNone[kMaxOperands] = {};
  for_each_narrow(it, kNone, f);
}

}  // namespace lorry::kernels::cuda
