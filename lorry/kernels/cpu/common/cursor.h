#pragma once

#include "lorry/layout/layout.h"

namespace lorry::kernels::cpu {

/// A position in an iteration: the index in every dimension and each operand's offset in elements.
struct Cursor {
  const Iteration& it;
  int64_t at[kMaxRank];
  int64_t offset[kMaxOperands] = {};

  Cursor(const Iteration& iteration, int64_t linear) : it(iteration) {
    for (int d = 0; d < it.rank; ++d) {
      at[d] = linear % it.sizes[d];
      linear /= it.sizes[d];
      for (int k = 0; k < it.operands; ++k) offset[k] += at[d] * it.strides[k][d];
    }
  }
  int64_t left_in_row() const { return it.sizes[0] - at[0]; }
  /// Moves forward, at most to the end of the row.
  void step(int64_t elements) {
    at[0] += elements;
    for (int k = 0; k < it.operands; ++k) offset[k] += elements * it.strides[k][0];
    for (int d = 0; at[d] == it.sizes[d] && d + 1 < it.rank; ++d) {
      at[d] = 0;
      ++at[d + 1];
      for (int k = 0; k < it.operands; ++k) offset[k] += it.strides[k][d + 1] - it.sizes[d] * it.strides[k][d];
    }
  }
};

}  // namespace lorry::kernels::cpu
