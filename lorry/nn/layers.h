#pragma once

// Layers of models. Parameters are initialised as in PyTorch, with the default generator.

#include "lorry/nn/module.h"

namespace lorry::nn {

/// y = x W^T + b with W [out, in]. W and b are initialised uniformly in +-1 / sqrt(in).
class Linear : public Layer<Linear> {
 public:
  Linear(int64_t in, int64_t out, bool with_bias = true, const Options& options = {});
  Tensor forward(const Tensor& x) const;

  const Tensor weight;
  const Tensor bias;  ///< undefined without
};

/// Looks up rows of a table by index. Rows are initialised from a standard normal; row `padding_idx` (negative: counted
/// from the end) is 0 and gets no gradient.
class Embedding : public Layer<Embedding> {
 public:
  Embedding(int64_t rows, int64_t width, std::optional<int64_t> padding_idx = {}, const Options& options = {});
  Tensor forward(const Tensor& indices) const;

  const Tensor weight;

 private:
  std::optional<int64_t> padding_idx_;
};

/// Normalises the last dimensions, with sizes `normalized_shape` (a number: the last one), to mean 0 and variance 1,
/// then applies weight (initially 1) and bias (initially 0).
class LayerNorm : public Layer<LayerNorm> {
 public:
  explicit LayerNorm(const Dims& normalized_shape, bool with_bias = true, double eps = 1e-5,
                     const Options& options = {});
  /// LayerNorm({8, 16}).
  template <size_t N>
  explicit LayerNorm(const int64_t (&normalized_shape)[N], bool with_bias = true, double eps = 1e-5,
                     const Options& options = {})
      : LayerNorm(Dims(normalized_shape), with_bias, eps, options) {}
  Tensor forward(const Tensor& x) const;

  const Tensor weight;
  const Tensor bias;  ///< undefined without

 private:
  double eps_;
};

/// Normalises the last dimensions, with sizes `normalized_shape`, to root mean square 1, then applies weight (initially
/// 1). Without eps: the default of rms_norm. Zhang, Sennrich 2019.
class RMSNorm : public Layer<RMSNorm> {
 public:
  explicit RMSNorm(const Dims& normalized_shape, std::optional<double> eps = {}, const Options& options = {});
  /// RMSNorm({8, 16}).
  template <size_t N>
  explicit RMSNorm(const int64_t (&normalized_shape)[N], std::optional<double> eps = {}, const Options& options = {})
      : RMSNorm(Dims(normalized_shape), eps, options) {}
  Tensor forward(const Tensor& x) const;

  const Tensor weight;

 private:
  std::optional<double> eps_;
};

/// The rotation of pairs of coordinates at some positions: the tables of rotary (ops/rotary.h), [t, d / 2], in f32, or
/// f64 for f64.
struct Rotation {
  Tensor cos, sin;
};

/// The rotation for `count` positions from `first` on and heads of d coordinates, an even number. Pair i rotates by
/// base^(-2 i / d) per position. Computed in f64 and rounded once, because in f32 the angle at position 1000 has few
/// digits. Su et al. 2021, eq. 15. Throws ValueError.
Rotation rotation(int64_t first, int64_t count, int64_t d, const Options& options = {}, double base = 10'000);

/// In training, zeroes elements with probability p and scales the rest by 1 / (1 - p).
class Dropout : public Layer<Dropout> {
 public:
  explicit Dropout(double p);
  Tensor forward(const Tensor& x) const;
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace lorry::nn
