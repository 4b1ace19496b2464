#pragma once

// Rotary positions: pairs of coordinates of queries and keys are turned by angles that grow with the position.

#include "lorry/device/stream.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

struct RotaryArgs {
  Array out;             ///< contiguous [n, t, h, d], d even; shares no memory with x
  Array x;               ///< [n, t, h, d] of out's floating dtype; the last stride is 1, others are any
  Array cos, sin;        ///< contiguous [t, d / 2], of the type in which x is computed: f32, or f64 for f64
  int64_t heads = 0;     ///< the first `heads` of h are turned, the others copied
  bool inverse = false;  ///< turns by the opposite angles
};

struct RotaryKernels {
  /// Turns coordinates i and i + d / 2 of each head by the angle i of its position: formula/rotary.h.
  void (*rotary)(const RotaryArgs&, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
