#pragma once

// What a call costs at the least: bytes to be moved and operations to be done, from its row and its tensors.

#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

struct Cost {
  int64_t bytes = 0;  ///< read and written, each needed element once
  int64_t flops = 0;  ///< table.h says what counts as one
};

/// Of a call that has been made: in `after`, or in `before` for a call whose outputs are given. An expanded input
/// counts what lies in memory.
Cost cost(const CallView& call);

}  // namespace lorry::door
