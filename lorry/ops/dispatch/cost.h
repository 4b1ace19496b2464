#pragma once

// What a call must at least move and compute, from its row in the table and its tensors.

#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

struct Cost {
  int64_t bytes = 0;  ///< read and written, each needed element once
  int64_t flops = 0;  ///< table.h says what counts as one
};

/// Call it in `after`, or in `before` if the outputs are given. Inputs and attributes that are missing count nothing.
Cost cost(const CallView& call);

}  // namespace lorry::door
