#include "lorry/nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/gradcheck.h"

namespace lorry::nn {
namespace {

using test::Coordinates;
using test::element;

Options in_f64() { return {.dtype = kF64}; }

/// The parameters of a module as inputs of a gradient check, after x.
std::vector<Tensor> with_parameters(const Tensor& x, const Module& m) {
  std::vector<Tensor> inputs{x};
  for (const Tensor& p : m.parameters()) inputs.push_back(p);
  return inputs;
}

TEST(Layers, linear_is_a_product_with_a_bias) {
  const Linear layer(3, 2, true, in_f64());
  const Tensor x = randn({4, 3}, in_f64()).requires_grad_(), y = layer.forward(x);
  test::for_each_coordinate({4, 2}, [&](const Coordinates& at) {
    double sum = element(layer.bias, {at[1]});
    for (int64_t k = 0; k < 3; ++k) sum += element(x, {at[0], k}) * element(layer.weight, {at[1], k});
    EXPECT_NEAR(element(y, at), sum, 1e-14);
  });
  EXPECT_TRUE(
      test::gradcheck([&](const std::vector<Tensor>& v) { return layer.forward(v[0]); }, with_parameters(x, layer)));
  EXPECT_FALSE(Linear(3, 2, false).bias.defined());
  EXPECT_EQ(Linear(3, 2, false).parameters().size(), 1u);
}

TEST(Layers, linear_starts_uniform_within_its_bound) {
  manual_seed(5);
  const Linear layer(64, 400);
  EXPECT_LE(layer.weight.abs().max().item<double>(), 0.125);
  EXPECT_NEAR(layer.weight.mean().item<double>(), 0, 0.003);
  EXPECT_NEAR(layer.weight.std().item<double>(), 0.125 / std::sqrt(3.0), 0.001);
  EXPECT_GT(layer.bias.abs().max().item<double>(), 0.1);
}

TEST(Layers, layer_norm_has_mean_0_and_variance_1_before_its_weight) {
  const LayerNorm norm(8, true, 1e-12, in_f64());
  const Tensor x = randn({3, 8}, in_f64()).mul(5).add(3).detach().requires_grad_();
  const Tensor y = norm.forward(x);
  for (int64_t r = 0; r < 3; ++r) {
    EXPECT_NEAR(y[r].mean().item<double>(), 0, 1e-12);
    EXPECT_NEAR(y[r].var({}, 0).item<double>(), 1, 1e-9);
  }
  EXPECT_TRUE(
      test::gradcheck([&](const std::vector<Tensor>& v) { return norm.forward(v[0]); }, with_parameters(x, norm)));
  EXPECT_EQ(LayerNorm(8, false).parameters().size(), 1u);
}

TEST(Layers, rms_norm_has_mean_square_1_before_its_weight) {
  const RMSNorm norm(8, 1e-12, in_f64());
  const Tensor x = randn({3, 8}, in_f64()).mul(5).add(3).detach().requires_grad_();
  const Tensor y = norm.forward(x);
  for (int64_t r = 0; r < 3; ++r) EXPECT_NEAR(y[r].square().mean().item<double>(), 1, 1e-9);
  EXPECT_TRUE(
      test::gradcheck([&](const std::vector<Tensor>& v) { return norm.forward(v[0]); }, with_parameters(x, norm)));
}

TEST(Layers, embedding_reads_rows) {
  const Embedding table(5, 3, {}, in_f64());
  const Tensor indices = randint(0, 5, {2, 4});
  test::expect_elements(table.forward(indices), {2, 4, 3}, [&](const Coordinates& at) {
    return element(table.weight, {static_cast<int64_t>(element(indices, {at[0], at[1]})), at[2]});
  });
}

TEST(Layers, dropout_keeps_the_mean_and_reports_its_share) {
  const Dropout drop(0.25);
  const Tensor y = drop.forward(ones({100000}));
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.01);
  EXPECT_NEAR(y.eq(0).to(kF32).mean().item<double>(), 0.25, 0.01);
}

TEST(Layers, impossible_sizes_are_refused) {
  EXPECT_THROW(Linear(0, 2), ValueError);
  EXPECT_THROW(Linear(2, -1), ValueError);
  EXPECT_THROW(Embedding(0, 2), ValueError);
  EXPECT_THROW(LayerNorm(0), ValueError);
  EXPECT_THROW(RMSNorm(-1), ValueError);
  EXPECT_THROW(Dropout(1.5), ValueError);
}

TEST(Layers, norms_take_the_sizes_of_several_dimensions) {
  const LayerNorm centred(Dims{2, 3}, true, 1e-12, in_f64());
  const RMSNorm scaled(Dims{2, 3}, 1e-12, in_f64());
  const Tensor x = randn({4, 2, 3}, in_f64());
  EXPECT_EQ(centred.weight.sizes(), (Dims{2, 3}));
  EXPECT_EQ(centred.bias.sizes(), (Dims{2, 3}));
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_NEAR(centred.forward(x)[r].mean().item<double>(), 0, 1e-12);
    EXPECT_NEAR(scaled.forward(x)[r].square().mean().item<double>(), 1, 1e-9);
  }
  EXPECT_THROW(LayerNorm(Dims{}), ValueError);
  EXPECT_THROW(RMSNorm(Dims{2, 0}), ValueError);
}

TEST(Layers, rms_norm_without_eps_takes_that_of_the_type) {
  const Tensor x = tensor({{0.0, 1e-4}});
  EXPECT_TRUE(equal(RMSNorm(2).forward(x), rms_norm(x, {2})));
  EXPECT_FALSE(equal(RMSNorm(2, 1e-5).forward(x), rms_norm(x, {2})));
}

TEST(Layers, the_padding_row_of_an_embedding_is_0_and_gets_no_gradient) {
  const Embedding table(5, 3, -2, in_f64());
  EXPECT_TRUE(equal(table.weight[3], zeros({3}, in_f64())));
  EXPECT_TRUE((table.weight[4] != 0).all().item<bool>());
  table.forward(tensor({3, 4, 3})).sum().backward();
  EXPECT_TRUE(equal(table.weight.grad()[3], zeros({3}, in_f64())));
  EXPECT_TRUE(equal(table.weight.grad()[4], ones({3}, in_f64())));
  EXPECT_THROW(Embedding(5, 3, 5), IndexError);
}

TEST(Rotation, turns_pair_i_by_its_speed_times_the_position) {
  for (const DType dtype : {kF64, kF32, kBF16}) {
    const Rotation turn = rotation(5, 3, 6, {.dtype = dtype}, 100);
    EXPECT_EQ(turn.cos.sizes(), (Dims{3, 3}));
    EXPECT_EQ(turn.sin.sizes(), (Dims{3, 3}));
    EXPECT_EQ(turn.cos.dtype(), dtype == kF64 ? kF64 : kF32);
    EXPECT_EQ(turn.sin.dtype(), dtype == kF64 ? kF64 : kF32);
    test::for_each_coordinate({3, 3}, [&](const Coordinates& at) {
      const double angle = static_cast<double>(5 + at[0]) * std::pow(100.0, -2.0 * static_cast<double>(at[1]) / 6);
      EXPECT_NEAR(element(turn.cos, at), std::cos(angle), dtype == kF64 ? 1e-14 : 1e-7);
      EXPECT_NEAR(element(turn.sin, at), std::sin(angle), dtype == kF64 ? 1e-14 : 1e-7);
    });
  }
}

TEST(Rotation, is_exact_in_f32_at_distant_positions_too) {
  const Rotation turn = rotation(100'000, 2, 8);
  test::for_each_coordinate({2, 4}, [&](const Coordinates& at) {
    const double angle = static_cast<double>(100'000 + at[0]) * std::pow(10'000.0, -static_cast<double>(at[1]) / 4);
    EXPECT_NEAR(element(turn.cos, at), std::cos(angle), 1e-7);
    EXPECT_NEAR(element(turn.sin, at), std::sin(angle), 1e-7);
  });
}

TEST(Rotation, products_depend_on_distances_alone) {
  const Tensor q = randn({1, 1, 8}, in_f64()), k = randn({1, 1, 8}, in_f64());
  const auto at = [](const Tensor& x, int64_t position) {
    const Rotation turn = rotation(position, 1, 8, in_f64());
    return rotary(x, turn.cos, turn.sin);
  };
  const auto product = [&](int64_t at_q, int64_t at_k) { return at(q, at_q).mul(at(k, at_k)).sum().item<double>(); };
  for (const int64_t away : {0, 1, 7, 100}) EXPECT_NEAR(product(away + 4, 4), product(away + 300, 300), 1e-12) << away;
}

TEST(Rotation, what_makes_none_is_refused) {
  EXPECT_THROW(rotation(0, 4, 3), ValueError);
  EXPECT_THROW(rotation(0, 4, 0), ValueError);
  EXPECT_THROW(rotation(0, 4, 2, {}, 0), ValueError);
  EXPECT_EQ(rotation(3, 0, 6).cos.sizes(), (Dims{0, 3}));
}

}  // namespace
}  // namespace lorry::nn
