#pragma once

// Iterating over a range of an Iteration's elements, in runs of its innermost dimension, so that any range can be one
// thread's share.

#include <algorithm>
#include <cstdint>

#include "lorry/layout/dtype.h"
#include "lorry/layout/layout.h"

namespace lorry::kernels::cpu {

/// Calls body(offsets, count) for the runs along dimension 0 that cover the elements [begin, end), in order. offsets:
/// the element offset of each operand.
template <class Body>
void walk(const Iteration& it, int64_t begin, int64_t end, Body&& body) {
  int64_t index[kMaxRank], offsets[kMaxOperands] = {};
  int64_t rest = begin;
  for (int d = 0; d < it.rank; ++d) {
    index[d] = rest % it.sizes[d];
    rest /= it.sizes[d];
    for (int k = 0; k < it.operands; ++k) offsets[k] += index[d] * it.strides[k][d];
  }
  while (begin < end) {
    const int64_t count = std::min(it.sizes[0] - index[0], end - begin);
    body(static_cast<const int64_t*>(offsets), count);
    begin += count;
    index[0] += count;
    for (int k = 0; k < it.operands; ++k) offsets[k] += count * it.strides[k][0];
    for (int d = 0; d + 1 < it.rank && index[d] == it.sizes[d]; ++d) {
      for (int k = 0; k < it.operands; ++k) offsets[k] += it.strides[k][d + 1] - it.sizes[d] * it.strides[k][d];
      index[d] = 0;
      ++index[d + 1];
    }
  }
}

/// Calls f(Type<Word>) with an unsigned type of the element's size, for kernels that move elements without computing.
template <class F>
void visit_size(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

}  // namespace lorry::kernels::cpu
