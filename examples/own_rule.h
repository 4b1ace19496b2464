#pragma once

// Sign descent with momentum, written once for every device: the update of a rule of one's own.

#include "lorry/optim/custom.h"

struct SignMomentum {
  static constexpr const char* kName = "sign_momentum";

  /// h[0]: how much of the last direction is kept.
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    using namespace lorry::formula;  // select
    V& direction = states[0];
    direction = h[0] * direction + (V(1) - h[0]) * grad;
    param = param - h.lr * select(direction > V(0), V(1), select(direction < V(0), V(-1), V(0)));
  }
};
