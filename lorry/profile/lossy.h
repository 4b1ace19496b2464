#pragma once

// What lossy compression (ops/quantize.h) does to tensors and models: the range of the elements, the rate (compressed
// bytes by original bytes), and the loss, as errors of the elements and as what a GPT's predictions lose.
//
//   fmt::print("{}", to_string(profile::model_loss(model, QuantScheme::blocks())));
//   fmt::print("{}", to_string(profile::loss_by_layer(gpt, batches, QuantScheme::int8_per_channel(0))));
//
// Measuring computes in f64 and waits for the device. It records no gradients.

#include <span>
#include <string>
#include <vector>

#include "lorry/nn/gpt.h"
#include "lorry/ops/quantize.h"

namespace lorry::profile {

/// A tensor beside what compression made of it. Errors are of its elements.
struct TensorLoss {
  std::string name = {};
  std::string scheme = {};  ///< "": it was left as it is
  int64_t elements = 0;
  int64_t original_bytes = 0, compressed_bytes = 0;
  double smallest = 0, largest = 0;  ///< of the original; 0 of no elements
  double max_error = 0;              ///< the largest |error|
  double rms_error = 0;              ///< the root of the mean of its squares
  /// Signal to noise: 10 log10 of the sum of squares by the sum of squared errors. Infinite without errors.
  double snr_db = 0;
  /// The cosine of the angle between the two as vectors; 1 if both are zero.
  double cosine = 1;

  /// Compressed bytes by original bytes; 1 of no elements.
  double rate() const {
    return original_bytes == 0 ? 1 : static_cast<double>(compressed_bytes) / static_cast<double>(original_bytes);
  }
};

/// x after compression with a scheme. x: floating, any sizes. Throws the errors of quantize.
TensorLoss tensor_loss(const Tensor& x, const QuantScheme& scheme, const std::string& name = "");
/// x beside another tensor of x's sizes. `compressed_bytes` are the bytes of the latter. Throws ShapeError, DTypeError.
TensorLoss compare(const Tensor& x, const Tensor& approximation, const std::string& name = "");

/// What a model loses.
struct ModelLoss {
  std::vector<TensorLoss> tensors = {};  ///< a row for each named parameter
  TensorLoss total = {};                 ///< of all of them as one vector
};

/// Compresses every named parameter by itself. Those with fewer than two dimensions (biases, weights of norms) are left
/// as they are: they are few, and cost more than they save. Changes nothing in the model. Throws the errors of
/// quantize, and DTypeError for parameters that are not floating.
ModelLoss model_loss(const nn::Module& model, const QuantScheme& scheme);

/// A linear layer's outputs beside those with weight and inputs compressed to int8 (int8_linear). Bytes are the
/// weight's. x: [..., in] floating, of the weight's dtype.
TensorLoss int8_linear_loss(const nn::Linear& layer, const Tensor& x);

/// Tokens and their targets, both [b, t] i64.
struct TokenBatch {
  Tensor tokens, targets;
};

/// What compressing a layer's weights costs.
struct LayerLoss {
  std::string name = {};
  int64_t original_bytes = 0, compressed_bytes = 0;  ///< of the layer's weights
  double loss = 0;                                   ///< of the model with these weights compressed, in nats per token
  double added = 0;                                  ///< `loss` less that of the model as it is
};

/// What compressing the weights of a GPT costs its predictions.
struct LossByLayer {
  std::string scheme = {};
  double loss = 0;                     ///< of the model as it is, in nats per token
  std::vector<LayerLoss> layers = {};  ///< one layer compressed at a time
  LayerLoss all = {};                  ///< all of them together
};

/// The mean loss over the batches with the weights of each layer compressed, one at a time, then all. A layer is a
/// module that has parameters of two or more dimensions; only these are compressed. The weights are written in place
/// and written back, also if an error is thrown, bit by bit as they were. Batches count by their number of targets.
/// Throws ValueError without batches, and the errors of quantize and of GPT::loss.
LossByLayer loss_by_layer(nn::GPT& model, std::span<const TokenBatch> batches, const QuantScheme& scheme);

/// Tables, a row a line: for people.
std::string to_string(const TensorLoss& loss);
std::string to_string(const ModelLoss& loss);
std::string to_string(const LossByLayer& loss);

}  // namespace lorry::profile
