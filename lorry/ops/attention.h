#pragma once

#include <array>

#include "lorry/formula/philox.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

struct AttentionOptions {
  double dropout = 0;             ///< of the weights, in [0, 1]; drawn from `generator` (default: the device's)
  bool causal = false;            ///< query i sees keys 0 to i; excludes a mask
  std::optional<double> scale{};  ///< of q k^T; 1 / sqrt(d) when absent
  bool enable_gqa = false;        ///< q may have several times as many heads as k and v: neighbouring heads share one
  Generator* generator = nullptr;
};

/// dropout(softmax(scale * q k^T + mask)) v, in memory linear in t and s: the t x s weights are never stored, and the
/// backward pass computes them again. (Gradients recorded with create_graph do store them, and so does the gradient of
/// a mask.) q: [..., t, d], k: [..., s, d], v: [..., s, e], one floating dtype; the leading sizes broadcast, and the
/// last of them counts heads. mask: expandable to [..., t, s]; bool (true takes part) or floating (added). A query that
/// sees no key gives 0. Returns [..., t, e]. Throws ShapeError, DTypeError, DeviceError, ValueError. Vaswani et al.
/// 2017, eq. 1; Dao et al. 2022.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {},
                                    const AttentionOptions& options = {});

/// The same for q, k and v that one linear layer made: qkv is [b, t, 3 * width], first all heads of q, then of k, then
/// of v. The gradient is one tensor too, written once. Returns [b, t, width], heads side by side. No mask, no grouped
/// heads.
Tensor packed_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options = {});

}  // namespace lorry
