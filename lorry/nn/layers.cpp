#include "lorry/nn/layers.h"

#include <cmath>

#include "lorry/ops/ops.h"

namespace lorry::nn {
namespace {

int64_t positive(int64_t size, const char* layer, const char* what) {
  require<ValueError>(size > 0, "{}: {} is not positive; got {}", layer, what, size);
  return size;
}

Tensor uniform(const Dims& sizes, int64_t fan_in, const Options& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return empty(sizes, options).uniform_(-bound, bound);
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias, const Options& options)
    : weight(parameter("weight", uniform({positive(out, "Linear", "out"), positive(in, "Linear", "in")}, in, options))),
      bias(with_bias ? parameter("bias", uniform({out}, in, options)) : Tensor()) {}

Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, bias); }

Embedding::Embedding(int64_t rows, int64_t width, const Options& options)
    : weight(parameter("weight", randn({positive(rows, "Embedding", "rows"), positive(width, "Embedding", "width")}, options))) {}

Tensor Embedding::forward(const Tensor& indices) const { return embedding(indices, weight); }

LayerNorm::LayerNorm(int64_t width, bool with_bias, double eps, const Options& options)
    : weight(parameter("weight", ones({positive(width, "LayerNorm", "width")}, options))),
      bias(with_bias ? parameter("bias", zeros({width}, options)) : Tensor()),
      eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, {weight.size(0)}, weight, bias, eps_); }

RMSNorm::RMSNorm(int64_t width, double eps, const Options& options)
    : weight(parameter("weight", ones({positive(width, "RMSNorm", "width")}, options))), eps_(eps) {}

Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, {weight.size(0)}, weight, eps_); }

Dropout::Dropout(double p) : p_(p) { require<ValueError>(p >= 0 && p <= 1, "Dropout: p out of range; got {}; expected 0 to 1", p); }

Tensor Dropout::forward(const Tensor& x) const { return is_training() && p_ > 0 ? dropout(x, p_) : x; }

}  // namespace lorry::nn
