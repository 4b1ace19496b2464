#pragma once

// What a call must at least move and compute, from its row in the table and its tensors.

#include "lorry/base/span.h"
#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

struct Cost {
  int64_t bytes = 0;   ///< read and written, each needed element once
  int64_t flops = 0;   ///< table.h says what counts as one
  DType dtype = kF32;  ///< in which it computes: that of the first floating input, or else of the first floating output

  operator SpanCost() const { return {bytes, flops, static_cast<uint8_t>(dtype)}; }
};

/// Call it in `after`, or in `before` if the outputs are given. Inputs and attributes that are missing count nothing.
Cost cost(const CallView& call);

/// Which input of a product (Flops::product) is its first factor; the second follows. addmm and baddbmm have what they
/// add before them.
size_t first_factor(Op op);

/// The bytes of a tensor's elements that lie in memory: a dimension of stride 0 repeats what is there. 0 if undefined.
int64_t bytes_in_memory(const Tensor& x);

}  // namespace lorry::door
