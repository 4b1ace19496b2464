#pragma once

// Rotary positions for attention. nn/layers.h makes the tables of cosines and sines.

#include <optional>

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Turns each pair of coordinates (i, i + d / 2) of the first `heads` heads by angle i of its position, and copies the
/// other heads. So products of a query and a key depend on how far apart they stand. `inverse` turns by the opposite
/// angles: back.
/// x: [..., t, h, d] floating, d even. cos, sin: [t, d / 2], f32, or f64 for an f64 x. heads: 0 to h, by default h, as
/// for q and k of a packed [b, t, 3 * h, d] with heads = 2 * h. Returns a row-major tensor of x's shape and dtype;
/// 16-bit elements are computed in f32 and rounded once. x is read where it lies if its last dimension has no gaps and
/// its leading ones have one stride. The tables get no gradient.
/// Throws ShapeError, DTypeError, DeviceError, ValueError, and GradError for tables that require a gradient while
/// gradients are recorded.
/// Su et al. 2021 (RoFormer), eq. 34, with halves for pairs instead of neighbours, as in GPT-NeoX.
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, std::optional<int64_t> heads = {},
              bool inverse = false);

}  // namespace lorry
