// What compression costs, against plain loops, and a model that is as it was afterwards.

#include "lorry/profile/lossy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::profile {
namespace {

using test::elements;
using test::sample;
constexpr double kInf = std::numeric_limits<double>::infinity();

/// The figures of two lists of numbers, by their definitions.
void expect_figures(const TensorLoss& loss, const std::vector<double>& x, const std::vector<double>& y) {
  double squares = 0, others = 0, products = 0, errors = 0, most = 0, low = kInf, high = -kInf;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += x[i] * x[i], others += y[i] * y[i], products += x[i] * y[i];
    errors += (x[i] - y[i]) * (x[i] - y[i]), most = std::max(most, std::fabs(x[i] - y[i]));
    low = std::min(low, x[i]), high = std::max(high, x[i]);
  }
  EXPECT_EQ(loss.elements, static_cast<int64_t>(x.size()));
  EXPECT_EQ(loss.smallest, low);
  EXPECT_EQ(loss.largest, high);
  EXPECT_NEAR(loss.max_error, most, 1e-12);
  EXPECT_NEAR(loss.rms_error, std::sqrt(errors / static_cast<double>(x.size())), 1e-12);
  if (errors == 0)
    EXPECT_EQ(loss.snr_db, kInf);
  else
    EXPECT_NEAR(loss.snr_db, 10 * std::log10(squares / errors), 1e-9);
  EXPECT_NEAR(loss.cosine, products / std::sqrt(squares * others), 1e-12);
}

TEST(TensorLoss, holds_range_rate_and_errors) {
  for (const QuantScheme& scheme : {QuantScheme::int8(), QuantScheme::int8_per_channel(0, true), QuantScheme::blocks(),
                                    QuantScheme::float8_e4m3(), QuantScheme::float8_e5m2(true)})
    for (const DType dtype : {kBF16, kF32, kF64}) {
      const Tensor x = sample({6, 50}, dtype, 4, test::Memory::transposed);
      const TensorLoss loss = tensor_loss(x, scheme, "x");
      const Quantized q = quantize(x, scheme);
      expect_figures(loss, elements(x), elements(dequantize(q)));
      EXPECT_EQ(loss.name, "x");
      EXPECT_EQ(loss.scheme, to_string(scheme));
      EXPECT_EQ(loss.original_bytes, 300 * size_of(dtype));
      EXPECT_EQ(loss.compressed_bytes, q.nbytes());
      EXPECT_EQ(loss.rate(), q.rate());
    }
}

TEST(TensorLoss, of_int8_has_about_6_db_for_each_bit) {
  Generator generator(3);
  const Tensor x = rand({100'000}, {}, &generator).mul(2).sub(1);  // uniform: 20 log10(127 * sqrt(12) / sqrt(3)) = 48.1
  EXPECT_NEAR(tensor_loss(x, QuantScheme::int8()).snr_db, 48.1, 0.1);
}

TEST(TensorLoss, of_equal_tensors_of_zeros_and_of_nothing_is_defined) {
  const Tensor x = sample({5}, kF32, 1);
  const TensorLoss same = compare(x, x);
  EXPECT_EQ(same.max_error, 0);
  EXPECT_EQ(same.snr_db, kInf);
  EXPECT_EQ(same.cosine, 1);
  EXPECT_EQ(same.rate(), 1);
  EXPECT_EQ(compare(zeros({4}), zeros({4})).cosine, 1);
  EXPECT_EQ(compare(zeros({4}), ones({4})).cosine, 0);
  EXPECT_EQ(compare(zeros({4}), ones({4})).snr_db, -kInf);
  const TensorLoss nothing = tensor_loss(empty({0, 3}), QuantScheme::int8());
  EXPECT_EQ(nothing.elements, 0);
  EXPECT_EQ(nothing.rms_error, 0);
  EXPECT_EQ(nothing.rate(), 1);
}

TEST(TensorLoss, of_what_is_not_finite_is_nan_and_never_good) {
  const Tensor x = from_data(std::vector<float>{1, std::numeric_limits<float>::infinity()}, {2});
  const TensorLoss loss = tensor_loss(x, QuantScheme::int8());
  EXPECT_TRUE(std::isnan(loss.max_error));
  EXPECT_TRUE(std::isnan(loss.snr_db));
}

TEST(TensorLoss, of_other_sizes_or_dtypes_is_refused) {
  EXPECT_THROW(compare(zeros({4}), zeros({2, 2})), ShapeError);
  EXPECT_THROW(compare(zeros({4}, {.dtype = kI64}), zeros({4})), DTypeError);
  EXPECT_THROW(compare(zeros({4}), {}), ValueError);
}

nn::GPT small_gpt(double dropout = 0) {
  manual_seed(11);
  return nn::GPT({.vocab = 40, .context = 16, .layers = 2, .heads = 2, .width = 16, .dropout = dropout});
}

TEST(ModelLoss, has_a_row_for_each_parameter_and_their_total) {
  const nn::GPT model = small_gpt();
  const QuantScheme scheme = QuantScheme::int8_per_channel(0);
  const ModelLoss loss = model_loss(model, scheme);
  std::vector<double> all, coded;
  size_t i = 0;
  int64_t bytes = 0;
  for (const auto& [name, x] : model.named_parameters()) {
    ASSERT_LT(i, loss.tensors.size());
    EXPECT_EQ(loss.tensors[i].name, name);
    const std::vector<double> own = elements(x), back = x.dim() < 2 ? own : elements(dequantize(quantize(x, scheme)));
    if (x.dim() < 2) {
      EXPECT_EQ(loss.tensors[i].scheme, "");
      EXPECT_EQ(loss.tensors[i].rate(), 1);
      EXPECT_EQ(loss.tensors[i].max_error, 0);
    } else {
      expect_figures(loss.tensors[i], own, back);
    }
    all.insert(all.end(), own.begin(), own.end()), coded.insert(coded.end(), back.begin(), back.end());
    bytes += loss.tensors[i].compressed_bytes;
    ++i;
  }
  EXPECT_EQ(loss.tensors.size(), i);
  expect_figures(loss.total, all, coded);
  EXPECT_EQ(loss.total.compressed_bytes, bytes);
  EXPECT_LT(loss.total.rate(), 0.4);
}

std::vector<TokenBatch> batches_for(int64_t vocab) {
  Generator generator(5);
  std::vector<TokenBatch> batches;
  for (const int64_t rows : {3, 1})
    batches.push_back({randint(0, vocab, {rows, 16}, {.dtype = kI64}, &generator),
                       randint(0, vocab, {rows, 16}, {.dtype = kI64}, &generator)});
  return batches;
}

/// The loss over the batches, by tokens.
double mean_loss(const nn::GPT& model, const std::vector<TokenBatch>& batches) {
  const NoGrad no_grad;
  return (3 * model.loss(batches[0].tokens, batches[0].targets).item<double>() +
          model.loss(batches[1].tokens, batches[1].targets).item<double>()) /
         4;
}

TEST(LossByLayer, is_that_of_a_model_whose_layer_was_compressed_by_hand) {
  nn::GPT model = small_gpt();
  const std::vector<TokenBatch> batches = batches_for(40);
  const QuantScheme scheme = QuantScheme::float8_e5m2();
  const LossByLayer loss = loss_by_layer(model, batches, scheme);
  EXPECT_EQ(loss.scheme, "e5m2");
  EXPECT_NEAR(loss.loss, mean_loss(model, batches), 1e-6);
  std::map<std::string, const LayerLoss*> by_name;
  for (const LayerLoss& layer : loss.layers) by_name[layer.name] = &layer;
  EXPECT_EQ(by_name.size(), 10u) << "tokens, positions, and four linear layers in each of two blocks";
  nn::GPT all = small_gpt();
  for (const auto& [name, x] : all.named_parameters()) {
    if (x.dim() < 2) continue;
    nn::GPT one = small_gpt();
    const NoGrad no_grad;
    for (const auto& [other, y] : one.named_parameters())
      if (other == name) y.copy_(dequantize(quantize(y, scheme)));
    x.copy_(dequantize(quantize(x, scheme)));
    const std::string layer = name.substr(0, name.rfind('.'));
    ASSERT_TRUE(by_name.contains(layer)) << layer;
    EXPECT_NEAR(by_name[layer]->loss, mean_loss(one, batches), 1e-6) << layer;
    EXPECT_NEAR(by_name[layer]->added, by_name[layer]->loss - loss.loss, 1e-12);
    EXPECT_EQ(by_name[layer]->original_bytes, 4 * x.numel());
    EXPECT_EQ(by_name[layer]->compressed_bytes, x.numel());
  }
  EXPECT_NEAR(loss.all.loss, mean_loss(all, batches), 1e-6);
  EXPECT_NE(loss.all.added, 0);
}

TEST(LossByLayer, leaves_weights_and_modes_as_they_were_also_after_an_error) {
  nn::GPT model = small_gpt(0.5);
  model.blocks[0].eval();
  std::map<std::string, std::vector<double>> before;
  for (const auto& [name, x] : model.named_parameters()) before[name] = elements(x);
  const auto expect_unchanged = [&] {
    for (const auto& [name, x] : model.named_parameters()) {
      EXPECT_EQ(elements(x), before[name]) << name;
      EXPECT_TRUE(x.requires_grad());
    }
    EXPECT_TRUE(model.is_training());
    EXPECT_FALSE(model.blocks[0].is_training());
    EXPECT_TRUE(model.blocks[1].is_training());
  };
  const std::vector<TokenBatch> batches = batches_for(40);
  const LossByLayer once = loss_by_layer(model, batches, QuantScheme::int8()),
                    again = loss_by_layer(model, batches, QuantScheme::int8());
  EXPECT_EQ(once.loss, again.loss) << "dropout is off";
  expect_unchanged();
  EXPECT_THROW(loss_by_layer(model, batches, QuantScheme::int8_per_channel(2)), IndexError);
  expect_unchanged();
  EXPECT_THROW(loss_by_layer(model, {}, QuantScheme::int8()), ValueError);
}

TEST(Int8LinearLoss, compares_the_outputs_of_a_layer) {
  manual_seed(2);
  const nn::Linear layer(64, 32);
  const Tensor x = sample({5, 64}, kF32, 1);
  const TensorLoss loss = int8_linear_loss(layer, x);
  const NoGrad no_grad;
  expect_figures(loss, elements(layer.forward(x)),
                 elements(int8_linear(x, quantize(layer.weight, QuantScheme::int8_per_channel(0)), layer.bias)));
  EXPECT_EQ(loss.original_bytes, 4 * 64 * 32);
  EXPECT_EQ(loss.compressed_bytes, 64 * 32 + 4 * 32);
  EXPECT_GT(loss.snr_db, 35);
  EXPECT_GT(loss.max_error, 0);
}

TEST(LossyTables, have_a_line_for_each_row) {
  const nn::GPT model = small_gpt();
  const std::string text = to_string(model_loss(model, QuantScheme::blocks()));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<int64_t>(model.named_parameters().size()) + 2);
  EXPECT_NE(text.find("block1.mlp.down.weight"), std::string::npos);
  EXPECT_NE(text.find("exact"), std::string::npos) << "biases are left as they are";
  const LossByLayer loss{
      .scheme = "e4m3",
      .loss = 2,
      .layers = {{.name = "tokens", .original_bytes = 40, .compressed_bytes = 10, .loss = 2.5, .added = 0.5}},
      .all = {.name = "all", .loss = 3, .added = 1}};
  EXPECT_EQ(to_string(loss),
            "layer        bytes  compressed       loss       added\n"
            "none                              2.00000\n"
            "tokens        40 B        10 B    2.50000    +0.50000\n"
            "all            0 B         0 B    3.00000    +1.00000\n");
}

}  // namespace
}  // namespace lorry::profile
