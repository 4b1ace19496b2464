#pragma once

// Attention, and the positions of its queries and keys.

#include "lorry/device/stream.h"
#include "lorry/formula/philox.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

// ---- attention ------------------------------------------------------------------------------------------------------

// Scaled dot-product attention without its t x s matrix: blocks of queries walk the keys with a running maximum and sum
// (Dao et al. 2022), and the backward pass recomputes the weights from the saved logsumexp. Memory is linear in t and
// s.

/// out = dropout(softmax(scale * q k^T + mask)) v for every batch entry and head.
/// q [b, h, t, d], k [b, g, s, d], v [b, g, s, e], out [b, h, t, e]: one floating dtype, h a multiple of g; the last
/// stride is 1 and the one before at least the last size.
struct AttentionArgs {
  Array q, k, v, out;
  Array logsumexp;  ///< [b, h, t] row-major, f32 (f64 for f64): +infinity for a row that sees no key, whose out is 0
  Array mask;       ///< [b, h, t, s] of any strides: bool (true takes part) or q's dtype (added); data null: none
  double scale = 1;
  bool causal = false;  ///< query i sees keys 0 to i
  /// the share of weights dropped: those for which bernoulli(1 - dropout) under `key` over [b, h, t, s] is 0
  double dropout = 0;
  formula::RandomKey key;
};

/// The gradients of q, k and v, laid out as these may be; grad_out as out.
struct AttentionGrads {
  Array grad_out, grad_q, grad_k, grad_v;
};

struct AttentionKernels {
  void (*forward)(const AttentionArgs&, Stream);
  void (*backward)(const AttentionArgs&, const AttentionGrads&, Stream);
};

// ---- rotary ---------------------------------------------------------------------------------------------------------

// Rotary positions: pairs of coordinates of queries and keys are turned by angles that grow with the position.

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
