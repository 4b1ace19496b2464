#include "lorry/nn/layers.h"

#include <cmath>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"

namespace lorry::nn {
namespace {

int64_t positive(int64_t size, const char* layer, const char* what) {
  require<ValueError>(size > 0, "{}: {} is not positive; got {}", layer, what, size);
  return size;
}

const Dims& positive(const Dims& sizes, const char* layer) {
  require<ValueError>(!sizes.empty(), "{}: normalized_shape is empty; expected at least one size", layer);
  for (const int64_t size : sizes) positive(size, layer, "a size of normalized_shape");
  return sizes;
}

Tensor uniform(const Dims& sizes, int64_t fan_in, const Options& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return empty(sizes, options).uniform_(-bound, bound);
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias, const Options& options)
    : weight(parameter("weight", uniform({positive(out, "Linear", "out"), positive(in, "Linear", "in")}, in, options))),
      bias(with_bias ? parameter("bias", uniform({out}, in, options)) : Tensor()) {}

Tensor Linear::forward(const Tensor& x) const {
  const Scope here = scope();
  return linear(x, weight, bias);
}

Embedding::Embedding(int64_t rows, int64_t width, std::optional<int64_t> padding_idx, const Options& options)
    : weight(parameter("weight",
                       randn({positive(rows, "Embedding", "rows"), positive(width, "Embedding", "width")}, options))),
      padding_idx_(padding_idx) {
  if (!padding_idx) return;
  require<IndexError>(*padding_idx >= -rows && *padding_idx < rows,
                      "Embedding: padding_idx out of range; got {}; expected {} to {}", *padding_idx, -rows, rows - 1);
  const NoGrad quiet;
  weight[*padding_idx] = 0;
}

Tensor Embedding::forward(const Tensor& indices) const {
  const Scope here = scope();
  return embedding(indices, weight, padding_idx_);
}

LayerNorm::LayerNorm(const Dims& normalized_shape, bool with_bias, double eps, const Options& options)
    : weight(parameter("weight", ones(positive(normalized_shape, "LayerNorm"), options))),
      bias(with_bias ? parameter("bias", zeros(normalized_shape, options)) : Tensor()),
      eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x) const {
  const Scope here = scope();
  return layer_norm(x, weight.sizes(), weight, bias, eps_);
}

RMSNorm::RMSNorm(const Dims& normalized_shape, std::optional<double> eps, const Options& options)
    : weight(parameter("weight", ones(positive(normalized_shape, "RMSNorm"), options))), eps_(eps) {}

Tensor RMSNorm::forward(const Tensor& x) const {
  const Scope here = scope();
  return rms_norm(x, weight.sizes(), weight, eps_);
}

Rotation rotation(int64_t first, int64_t count, int64_t d, const Options& options, double base) {
  const Running running("rotation");
  require<ValueError>(d > 0 && d % 2 == 0, "the coordinates of a head make no pairs; got {}", d);
  require<ValueError>(base > 0, "base is not positive; got {}", base);
  const Options exact{kF64, options.device};
  const Tensor speeds = arange(d / 2, exact).mul(-2 * std::log(base) / static_cast<double>(d)).exp();
  const Tensor angles = arange(first, first + count, exact).unsqueeze(1).mul(speeds);
  const DType dtype = options.dtype == kF64 ? kF64 : kF32;
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

Dropout::Dropout(double p) : p_(p) {
  require<ValueError>(p >= 0 && p <= 1, "Dropout: p out of range; got {}; expected 0 to 1", p);
}

Tensor Dropout::forward(const Tensor& x) const {
  const Scope here = scope();
  return is_training() && p_ > 0 ? dropout(x, p_) : x;
}

}  // namespace lorry::nn
