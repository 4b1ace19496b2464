#pragma once

// Attention and rotary positions.

#include "lorry/device/stream.h"
#include "lorry/formula/philox.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

// ---- attention ------------------------------------------------------------------------------------------------------

// Scaled dot-product attention. The t x s matrix of scores is never stored: for a block of queries, the kernel runs
// over the keys with a running maximum and sum (Dao et al. 2022). The backward pass recomputes the weights from the
// saved logsumexp. Memory is linear in t and s.

/// out = dropout(softmax(scale * q k^T + mask)) v for every batch entry and head.
/// q [b, h, t, d], k [b, g, s, d], v [b, g, s, e], out [b, h, t, e]: one floating dtype, h a multiple of g; the last
/// stride is 1 and the one before at least the last size.
struct AttentionArgs {
  Array q, k, v, out;
  /// [b, h, t] row-major, f32 (f64 for f64). For a row that attends to no key it is +infinity, and out is 0
  Array logsumexp;
  /// [b, h, t, s] with any strides: bool (true: takes part) or q's dtype (added to the scores); null data: none
  Array mask;
  double scale = 1;
  bool causal = false;  ///< query i attends to keys 0 to i
  /// the fraction of weights to drop: those for which bernoulli(1 - dropout) under `key` over [b, h, t, s] is 0
  double dropout = 0;
  formula::RandomKey key;
};

/// grad_out has the layout rules of out; grad_q, grad_k and grad_v those of q, k and v.
struct AttentionGrads {
  Array grad_out, grad_q, grad_k, grad_v;
};

struct AttentionKernels {
  void (*forward)(const AttentionArgs&, Stream);
  void (*backward)(const AttentionArgs&, const AttentionGrads&, Stream);
};

// ---- rotary ---------------------------------------------------------------------------------------------------------

// Rotary positions: pairs of coordinates of queries and keys are rotated by angles proportional to the position.

struct RotaryArgs {
  Array out;             ///< contiguous [n, t, h, d], d even; shares no memory with x
  Array x;               ///< [n, t, h, d] of out's floating dtype; the last stride is 1, the others are arbitrary
  Array cos, sin;        ///< contiguous [t, d / 2], of x's compute type: f32, or f64 for f64
  int64_t heads = 0;     ///< the first `heads` of h are rotated, the others copied
  bool inverse = false;  ///< rotates by the negative angles
};

struct RotaryKernels {
  /// Rotates coordinates i and i + d / 2 of each head by angle i of its position: formula/rotary.h.
  void (*rotary)(const RotaryArgs&, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
