#include "lorry/profile/lossy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/units.h"
#include "lorry/ops/ops.h"

namespace lorry::profile {
namespace {

/// Sums over elements from which all figures follow, so that those of a model are sums of its tensors'.
struct Sums {
  double squares = 0, other_squares = 0, products = 0, error_squares = 0;
  double max_error = 0, smallest = 0, largest = 0;
  int64_t elements = 0;

  void add(const Sums& x) {
    if (x.elements == 0) return;
    // a NaN stays
    const auto largest_of = [](double a, double b) { return a >= b || a != a ? a : b; };
    smallest = elements == 0 ? x.smallest : -largest_of(-smallest, -x.smallest);
    largest = elements == 0 ? x.largest : largest_of(largest, x.largest);
    max_error = largest_of(max_error, x.max_error);
    squares += x.squares, other_squares += x.other_squares, products += x.products, error_squares += x.error_squares;
    elements += x.elements;
  }
};

/// The sums of a tensor and an approximation, with one wait.
Sums sums_of(const Tensor& original, const Tensor& approximation) {
  Sums sums{.elements = original.numel()};
  if (sums.elements == 0) return sums;
  const Tensor x = original.detach().to(kF64), y = approximation.detach().to(kF64), error = x.sub(y);
  const auto [smallest, largest] = x.aminmax();
  const Tensor figures = stack({x.square().sum(), y.square().sum(), x.mul(y).sum(), error.square().sum(),
                                error.abs().amax(), smallest, largest})
                             .to(kCPU);
  const double* const at = figures.data<double>();
  sums.squares = at[0], sums.other_squares = at[1], sums.products = at[2], sums.error_squares = at[3];
  sums.max_error = at[4], sums.smallest = at[5], sums.largest = at[6];
  return sums;
}

void set_figures(TensorLoss& loss, const Sums& sums) {
  loss.elements = sums.elements;
  loss.smallest = sums.smallest, loss.largest = sums.largest;
  loss.max_error = sums.max_error;
  loss.rms_error = sums.elements == 0 ? 0 : std::sqrt(sums.error_squares / static_cast<double>(sums.elements));
  loss.snr_db = sums.error_squares == 0 ? std::numeric_limits<double>::infinity()
                                        : 10 * std::log10(sums.squares / sums.error_squares);
  if (sums.squares == 0 || sums.other_squares == 0) {
    loss.cosine = sums.squares == sums.other_squares ? 1 : 0;
  } else {
    // Of equal vectors exactly 1, and squares are not multiplied, which could overflow. Rounding may carry it past 1.
    loss.cosine = std::clamp(sums.products / sums.squares * std::sqrt(sums.squares / sums.other_squares), -1.0, 1.0);
  }
}

bool is_compressed(const Tensor& parameter) { return parameter.dim() >= 2; }

/// What the figures of a tensor are computed from.
struct Measured {
  TensorLoss loss;
  Sums sums;
};

Measured measure(const Tensor& x, const QuantScheme& scheme, const std::string& name) {
  const Quantized q = quantize(x, scheme);
  Measured m{.loss = {.name = name,
                      .scheme = lorry::to_string(scheme),
                      .original_bytes = q.original_nbytes(),
                      .compressed_bytes = q.nbytes()},
             .sums = sums_of(x, dequantize(q))};
  set_figures(m.loss, m.sums);
  return m;
}

Measured unchanged(const Tensor& x, const std::string& name) {
  Measured m{.loss = {.name = name, .original_bytes = x.nbytes(), .compressed_bytes = x.nbytes()},
             .sums = sums_of(x, x)};
  set_figures(m.loss, m.sums);
  return m;
}

/// A layer's weights, and what they were.
class Weights {
 public:
  Weights(std::string name, std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
    loss_.name = std::move(name);
  }
  ~Weights() { restore(); }
  Weights(Weights&& other) noexcept = default;
  Weights& operator=(Weights&&) = delete;

  const std::string& name() const { return loss_.name; }
  void add(const Tensor& parameter) { parameters_.push_back(parameter); }
  void compress(const QuantScheme& scheme) {
    loss_.original_bytes = loss_.compressed_bytes = 0;
    for (const Tensor& x : parameters_) {
      const Quantized q = quantize(x, scheme);
      loss_.original_bytes += q.original_nbytes(), loss_.compressed_bytes += q.nbytes();
      originals_.push_back(x.detach().clone());
      x.copy_(dequantize(q));
    }
  }
  void restore() {
    for (size_t i = 0; i < originals_.size(); ++i) parameters_[i].copy_(originals_[i]);
    originals_.clear();
  }
  const LayerLoss& loss() const { return loss_; }

 private:
  std::vector<Tensor> parameters_, originals_;
  LayerLoss loss_;
};

std::vector<Weights> layers_of(const nn::Module& model) {
  std::vector<Weights> layers;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!is_compressed(parameter)) continue;
    const size_t dot = name.rfind('.');
    const std::string layer = dot == std::string::npos ? name : name.substr(0, dot);
    const auto known = std::ranges::find(layers, layer, &Weights::name);
    if (known == layers.end())
      layers.emplace_back(layer, std::vector<Tensor>{parameter});
    else
      known->add(parameter);
  }
  return layers;
}

/// Switches a model to evaluation, and every module back to what it was.
class Evaluation {
 public:
  explicit Evaluation(nn::Module& model) {
    for (const auto& [name, module] : model.named_modules()) were_.emplace_back(module, module->is_training());
    model.eval();
  }
  ~Evaluation() {
    // A module switches all below it, which come after it here and are then switched themselves.
    for (const auto& [module, training] : were_) module->train(training);
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  std::vector<std::pair<nn::Module*, bool>> were_;
};

double mean_loss(const nn::GPT& model, std::span<const TokenBatch> batches) {
  double total = 0, targets = 0;
  for (const TokenBatch& batch : batches) {
    const auto count = static_cast<double>(batch.targets.numel());
    total += count * model.loss(batch.tokens, batch.targets).item<double>();
    targets += count;
  }
  return total / targets;
}

size_t name_width(size_t least, std::string_view name) { return std::max(least, name.size()); }

std::string header(size_t width) {
  return fmt::format("{:<{}}  {:>10}  {:>6}  {:>11}  {:>11}  {:>10}  {:>10}  {:>8}  {:>10}\n", "tensor", width, "bytes",
                     "rate", "smallest", "largest", "max error", "rms error", "SNR dB", "cosine");
}

std::string row(const TensorLoss& x, size_t width) {
  const std::string snr = std::isinf(x.snr_db) && x.snr_db > 0 ? "exact" : fmt::format("{:.1f}", x.snr_db);
  return fmt::format("{:<{}}  {:>10}  {:>6.3f}  {:>11.4g}  {:>11.4g}  {:>10.3g}  {:>10.3g}  {:>8}  {:>10.8f}\n", x.name,
                     width, bytes_text(x.original_bytes), x.rate(), x.smallest, x.largest, x.max_error, x.rms_error,
                     snr, x.cosine);
}

}  // namespace

TensorLoss tensor_loss(const Tensor& x, const QuantScheme& scheme, const std::string& name) {
  const NoGrad no_grad;
  return measure(x, scheme, name).loss;
}

TensorLoss compare(const Tensor& x, const Tensor& approximation, const std::string& name) {
  require<ValueError>(x.defined() && approximation.defined(), "compare: a tensor is undefined; expected two tensors");
  require<ShapeError>(x.sizes() == approximation.sizes(), "compare: sizes differ; got {} and {}", x, approximation);
  require<DTypeError>(is_floating(x.dtype()) && is_floating(approximation.dtype()),
                      "compare: a tensor is not floating; got {} and {}", x, approximation);
  const NoGrad no_grad;
  TensorLoss loss{.name = name, .original_bytes = x.nbytes(), .compressed_bytes = approximation.nbytes()};
  set_figures(loss, sums_of(x, approximation));
  return loss;
}

ModelLoss model_loss(const nn::Module& model, const QuantScheme& scheme) {
  const NoGrad no_grad;
  ModelLoss all{.tensors = {}, .total = {.name = "total", .scheme = lorry::to_string(scheme)}};
  Sums sums;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Measured one = is_compressed(parameter) ? measure(parameter, scheme, name) : unchanged(parameter, name);
    all.tensors.push_back(one.loss);
    sums.add(one.sums);
    all.total.original_bytes += one.loss.original_bytes, all.total.compressed_bytes += one.loss.compressed_bytes;
  }
  set_figures(all.total, sums);
  return all;
}

TensorLoss int8_linear_loss(const nn::Linear& layer, const Tensor& x) {
  const NoGrad no_grad;
  const Quantized weight = quantize(layer.weight, QuantScheme::int8_per_channel(0));
  TensorLoss loss = compare(layer.forward(x), int8_linear(x, weight, layer.bias), layer.path());
  loss.scheme = lorry::to_string(weight.scheme);
  loss.original_bytes = weight.original_nbytes(), loss.compressed_bytes = weight.nbytes();
  return loss;
}

LossByLayer loss_by_layer(nn::GPT& model, std::span<const TokenBatch> batches, const QuantScheme& scheme) {
  require<ValueError>(!batches.empty(), "loss_by_layer: there are no batches; expected at least one");
  const NoGrad no_grad;
  const Evaluation evaluation(model);
  LossByLayer result{.scheme = lorry::to_string(scheme), .loss = mean_loss(model, batches), .layers = {}, .all = {}};
  std::vector<Weights> layers = layers_of(model);
  const auto measured = [&](LayerLoss layer) {
    layer.loss = mean_loss(model, batches);
    layer.added = layer.loss - result.loss;
    return layer;
  };
  for (Weights& layer : layers) {
    layer.compress(scheme);
    result.layers.push_back(measured(layer.loss()));
    layer.restore();
  }
  LayerLoss all{.name = "all"};
  for (Weights& layer : layers) {
    layer.compress(scheme);
    all.original_bytes += layer.loss().original_bytes, all.compressed_bytes += layer.loss().compressed_bytes;
  }
  result.all = measured(all);
  return result;  // the weights are written back by their destructors
}

std::string to_string(const TensorLoss& loss) {
  const size_t width = name_width(6, loss.name);
  return header(width) + row(loss, width);
}

std::string to_string(const ModelLoss& loss) {
  size_t width = name_width(6, loss.total.name);
  for (const TensorLoss& x : loss.tensors) width = name_width(width, x.name);
  std::string text = header(width);
  for (const TensorLoss& x : loss.tensors) text += row(x, width);
  return text + row(loss.total, width);
}

std::string to_string(const LossByLayer& loss) {
  size_t width = 5;
  for (const LayerLoss& x : loss.layers) width = name_width(width, x.name);
  std::string text =
      fmt::format("{:<{}}  {:>10}  {:>10}  {:>9}  {:>10}\n", "layer", width, "bytes", "compressed", "loss", "added");
  text += fmt::format("{:<{}}  {:>10}  {:>10}  {:>9.5f}\n", "none", width, "", "", loss.loss);
  const auto add = [&](const LayerLoss& x) {
    text += fmt::format("{:<{}}  {:>10}  {:>10}  {:>9.5f}  {:>+10.5f}\n", x.name, width, bytes_text(x.original_bytes),
                        bytes_text(x.compressed_bytes), x.loss, x.added);
  };
  for (const LayerLoss& x : loss.layers) add(x);
  add(loss.all);
  return text;
}

}  // namespace lorry::profile
