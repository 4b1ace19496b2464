#include "lorry/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "lorry/autograd/engine.h"
#include "lorry/device/cpu/team.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/dtypes.h"
#include "tests/support/gradcheck.h"
#include "tests/support/host.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Attention by its definition, in double; [b, h, t, d] operands, mask undefined or expandable to [b, h, t, s].
Tensor oracle(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal, double scale) {
  const int64_t b = q.size(0), h = q.size(1), t = q.size(2), s = k.size(2), d = q.size(3), e = v.size(3),
                group = h / k.size(1);
  const Tensor full = mask.defined() ? mask.expand({b, h, t, s}) : Tensor(), out = zeros({b, h, t, e}, {kF64});
  for (int64_t n = 0; n < b * h * t; ++n) {
    const int64_t i = n / t / h, j = n / t % h, r = n % t;
    std::vector<double> weights(static_cast<size_t>(s));
    double most = -kInfinity, total = 0;
    for (int64_t c = 0; c < s; ++c) {
      double sum = 0;
      for (int64_t p = 0; p < d; ++p) sum += element(q, {i, j, r, p}) * element(k, {i, j / group, c, p});
      sum *= scale;
      if (causal && c > r) sum = -kInfinity;
      if (full.defined())
        sum +=
            full.dtype() == kBool ? (element(full, {i, j, r, c}) != 0 ? 0 : -kInfinity) : element(full, {i, j, r, c});
      weights[static_cast<size_t>(c)] = sum;
      most = std::max(most, sum);
    }
    if (most == -kInfinity) continue;
    for (double& w : weights) total += w = std::exp(w - most);
    for (int64_t p = 0; p < e; ++p) {
      double sum = 0;
      for (int64_t c = 0; c < s; ++c) sum += weights[static_cast<size_t>(c)] / total * element(v, {i, j / group, c, p});
      test::set_element(out, {i, j, r, p}, sum);
    }
  }
  return out;
}

double worst(const Tensor& got, const Tensor& expected) {
  const double difference = got.numel() == 0 ? 0 : (got.to(kF64) - expected).abs().max().item<double>();
  return std::isnan(difference) ? kInfinity : difference;
}

double tolerance(DType t) { return t == kF64 ? 1e-12 : t == kF32 ? 1e-5 : t == kF16 ? 4e-3 : 3e-2; }

struct Shape {
  int64_t b, h, g, t, s, d, e;
};

/// q, k, v of a dtype, as [b, t, h, d] turned round so that rows have gaps.
std::array<Tensor, 3> operands(const Shape& x, DType dtype) {
  const auto make = [&](int64_t heads, int64_t length, int64_t width) {
    return randn({x.b, length, heads, width}, {kF64}).to(dtype).transpose(1, 2);
  };
  return {make(x.h, x.t, x.d), make(x.g, x.s, x.d), make(x.g, x.s, x.e)};
}

TEST(Attention, agrees_with_its_definition_in_every_dtype_and_shape) {
  for (const DType dtype : test::kFloatingDTypes) {
    for (const Shape& x : {Shape{2, 3, 3, 5, 7, 4, 6},
                           {1, 4, 2, 70, 65, 16, 16},
                           {2, 6, 1, 33, 130, 8, 5},
                           {1, 1, 1, 1, 600, 32, 32},
                           {1, 2, 2, 130, 1100, 8, 8},
                           {1, 4, 2, 64, 128, 16, 16},  // lengths of whole tiles: what a library's kernel takes
                           {1, 2, 2, 3, 1, 1, 1}}) {
      const auto [q, k, v] = operands(x, dtype);
      for (const bool causal : {false, true}) {
        const Tensor got = scaled_dot_product_attention(q, k, v, {}, {.causal = causal, .enable_gqa = true});
        EXPECT_EQ(got.dtype(), dtype);
        EXPECT_LT(worst(got, oracle(q, k, v, {}, causal, 1 / std::sqrt(static_cast<double>(x.d)))), tolerance(dtype))
            << name(dtype) << " t " << x.t << " s " << x.s;
      }
    }
  }
}

TEST(Attention, masks_broadcast_and_are_bool_or_added) {
  const auto [q, k, v] = operands({2, 3, 3, 9, 14, 8, 8}, kF32);
  for (const Dims& sizes : {Dims{9, 14}, Dims{14}, Dims{2, 1, 1, 14}, Dims{2, 3, 9, 14}, Dims{3, 9, 1}, Dims{}}) {
    const Tensor added = randn(sizes), taken = randn(sizes).gt(-0.5);
    EXPECT_LT(worst(scaled_dot_product_attention(q, k, v, added, {.scale = 0.3}), oracle(q, k, v, added, false, 0.3)),
              1e-5)
        << to_string(sizes);
    EXPECT_LT(worst(scaled_dot_product_attention(q, k, v, taken, {.scale = -0.3}), oracle(q, k, v, taken, false, -0.3)),
              1e-5)
        << to_string(sizes);
  }
}

TEST(Attention, a_query_that_sees_no_key_gives_zero_and_gets_zero_gradients) {
  auto [q, k, v] = operands({1, 2, 2, 4, 5, 8, 8}, kF64);
  const Tensor mask = ones({4, 5}, {kBool});
  mask.select(0, 2).fill_(false);
  for (const Tensor* x : {&q, &k, &v}) x->requires_grad_();
  const Tensor out = scaled_dot_product_attention(q, k, v, mask);
  EXPECT_EQ(out.select(2, 2).abs().sum().item<double>(), 0);
  EXPECT_LT(worst(out.detach(), oracle(q, k, v, mask, false, 1 / std::sqrt(8.0))), 1e-12);
  out.sum().backward();
  EXPECT_EQ(q.grad().select(2, 2).abs().sum().item<double>(), 0);
  for (const Tensor* x : {&q, &k, &v}) EXPECT_TRUE(x->grad().isfinite().all().item<bool>());
}

TEST(Attention, large_scores_do_not_overflow_and_nan_spreads) {
  const auto [q, k, v] = operands({1, 1, 1, 6, 20, 4, 4}, kF32);
  const Tensor big = scaled_dot_product_attention(q.mul(1e4), k.mul(1e4), v);
  EXPECT_TRUE(big.isfinite().all().item<bool>());
  const Tensor bad = q.clone();
  bad.select(2, 3).fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor out = scaled_dot_product_attention(bad, k, v);
  EXPECT_TRUE(out.select(2, 3).isnan().all().item<bool>());
  EXPECT_FALSE(out.select(2, 2).isnan().any().item<bool>());
}

TEST(Attention, a_key_of_minus_infinity_has_no_weight) {
  for (const DType dtype : test::kFloatingDTypes)
    for (const int64_t s : {20, 300}) {
      const Tensor q = ones({1, 1, 2, 1}, {dtype}), k = zeros({1, 1, s, 1}, {dtype}), v = ones({1, 1, s, 3}, {dtype});
      k.select(2, 7).fill_(-kInfinity);
      v.select(2, 7).fill_(100);
      EXPECT_LT(worst(scaled_dot_product_attention(q, k, v), ones({1, 1, 2, 3}, {kF64})), tolerance(dtype))
          << name(dtype) << " over " << s;
    }
}

TEST(Attention, the_mean_of_many_values_does_not_drift) {
  const Tensor q = zeros({1, 1, 3, 8}), k = zeros({1, 1, 65536, 8}), v = rand({1, 1, 65536, 5});
  const Tensor mean = v.to(kF64).mean(Dims{2}, true).expand({1, 1, 3, 5});
  EXPECT_LT(worst(scaled_dot_product_attention(q, k, v), mean), 1e-5);
}

TEST(Attention, leading_sizes_broadcast_and_may_be_none_or_many) {
  const Tensor q = randn({5, 4}, {kF64}), k = randn({7, 4}, {kF64}), v = randn({7, 3}, {kF64});
  const auto four = [](const Tensor& x) { return x.unsqueeze(0).unsqueeze(0); };
  const Tensor expected = oracle(four(q), four(k), four(v), {}, false, 0.5);
  EXPECT_LT(worst(scaled_dot_product_attention(q, k, v), expected[0][0]), 1e-12);
  EXPECT_LT(worst(scaled_dot_product_attention(q.unsqueeze(0), k.expand({3, 7, 4}), v), expected[0].expand({3, 5, 3})),
            1e-12);
  EXPECT_LT(worst(scaled_dot_product_attention(q.expand({2, 1, 2, 5, 4}), k.expand({2, 1, 7, 4}), v),
                  expected.expand({2, 2, 2, 5, 3})),
            1e-12);
}

TEST(Attention, empties_are_ordinary) {
  const auto run = [](int64_t b, int64_t t, int64_t s) {
    return scaled_dot_product_attention(ones({b, 2, t, 4}), ones({b, 2, s, 4}), ones({b, 2, s, 3}));
  };
  EXPECT_EQ(run(0, 3, 4).sizes(), (Dims{0, 2, 3, 3}));
  EXPECT_EQ(run(1, 0, 4).sizes(), (Dims{1, 2, 0, 3}));
  EXPECT_EQ(run(1, 3, 0).abs().sum().item<double>(), 0);

  const Tensor q = ones({2, 0, 3, 4}), k = ones({2, 2, 5, 4}), v = ones({2, 2, 5, 3});  // no query head at all
  for (const Tensor& x : {q, k, v}) x.requires_grad_();
  const Tensor out = scaled_dot_product_attention(q, k, v, {}, {.enable_gqa = true});
  EXPECT_EQ(out.sizes(), (Dims{2, 0, 3, 3}));
  const auto grads = autograd::grad({out}, {q, k, v}, {ones(out.sizes())});
  EXPECT_EQ(grads[0].sizes(), q.sizes());
  EXPECT_EQ(grads[1].abs().sum().item<double>() + grads[2].abs().sum().item<double>(), 0);
}

TEST(Attention, gradients_are_right_to_second_order) {
  for (const Shape& x : {Shape{1, 2, 2, 3, 4, 2, 3}, {2, 4, 2, 3, 2, 2, 2}}) {
    auto made = operands(x, kF64);
    std::vector<Tensor> inputs;
    for (const Tensor& y : made) inputs.push_back(y.clone().requires_grad_());
    const Tensor taken = rand({x.t, x.s}).gt(0.3), added = randn({x.h, x.t, x.s}, {kF64}).requires_grad_();
    const auto with = [](const Tensor& mask, bool causal) -> test::Function {
      return [=](const std::vector<Tensor>& v) {
        return scaled_dot_product_attention(v[0], v[1], v[2], mask, {.causal = causal, .enable_gqa = true});
      };
    };
    for (const auto& f : {with({}, false), with({}, true), with(taken, false)}) {
      EXPECT_TRUE(test::gradcheck(f, inputs));
      EXPECT_TRUE(test::gradgradcheck(f, inputs));
    }
    inputs.push_back(added);
    const test::Function biased = [](const std::vector<Tensor>& v) {
      return scaled_dot_product_attention(v[0], v[1], v[2], v[3], {.enable_gqa = true});
    };
    EXPECT_TRUE(test::gradcheck(biased, inputs));
    EXPECT_TRUE(test::gradgradcheck(biased, inputs));
  }
}

/// The gradients of sum(out * weights), through the fused kernel or (recorded) through operators.
std::vector<Tensor> gradients(const std::array<Tensor, 3>& x, const Tensor& weights, const AttentionOptions& options,
                              bool recorded, const Tensor& mask = {}) {
  std::vector<Tensor> leaves;
  for (const Tensor& y : x) leaves.push_back(y.detach().clone().requires_grad_());
  if (options.generator != nullptr) options.generator->manual_seed(7);
  const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], mask, options);
  return autograd::grad({out}, leaves, {weights}, {.create_graph = recorded});
}

TEST(Attention, the_fused_backward_agrees_with_operators_over_many_blocks) {
  for (const DType dtype : test::kFloatingDTypes) {
    for (const Shape& x : {Shape{2, 2, 2, 150, 150, 16, 16},
                           {1, 4, 2, 70, 1100, 8, 12},
                           {2, 4, 2, 128, 192, 32, 32},
                           {2, 2, 2, 128, 64, 64, 64},
                           {1, 2, 1, 70, 80, 80, 16},
                           {1, 2, 1, 70, 80, 16, 80},
                           {1, 2, 2, 200, 257, 128, 72},
                           {1, 80, 80, 129, 130, 8, 8},  // more blocks than a GPU has multiprocessors
                           {1, 2, 1, 66, 70, 200, 136}}) {
      const auto inputs = operands(x, dtype);
      std::array<Tensor, 3> wide;
      for (size_t i = 0; i < 3; ++i) wide[i] = inputs[i].to(kF64);
      const Tensor weights = randn({x.b, x.h, x.t, x.e}, {kF64}).to(dtype);
      for (const bool causal : {false, true}) {
        const AttentionOptions options{.causal = causal, .enable_gqa = true};
        const auto fused = gradients(inputs, weights, options, false),
                   expected = gradients(wide, weights.to(kF64), options, true);
        for (size_t i = 0; i < 3; ++i) {
          const double size = expected[i].detach().abs().max().item<double>();
          EXPECT_LT(worst(fused[i], expected[i].detach()), tolerance(dtype) * std::max(1.0, size))
              << name(dtype) << " gradient " << i << (causal ? " causal" : "");
        }
      }
    }
  }
}

TEST(Attention, a_small_scale_does_not_round_gradients_to_zero) {
  std::array<Tensor, 3> inputs = operands({1, 2, 2, 70, 80, 32, 32}, kF16), wide;
  inputs[1] = inputs[1].mul(64);
  for (size_t i = 0; i < 3; ++i) wide[i] = inputs[i].to(kF64);
  const Tensor weights = randn({1, 2, 70, 32}, {kF64}).to(kF16);
  const AttentionOptions options{.scale = std::exp2(-16)};
  const auto fused = gradients(inputs, weights, options, false),
             expected = gradients(wide, weights.to(kF64), options, true);
  const double size = expected[0].detach().abs().max().item<double>();
  EXPECT_LT(worst(fused[0], expected[0].detach()), 4e-3 * size);
}

TEST(Attention, masks_and_dropout_agree_with_operators_over_many_blocks) {
  Generator generator(5);
  for (const DType dtype : test::kFloatingDTypes)
    for (const Shape& x : {Shape{2, 4, 2, 70, 150, 16, 16},
                           {1, 2, 1, 130, 101, 80, 72},
                           {1, 2, 1, 66, 70, 136, 16},
                           {1, 2, 2, 64, 300, 64, 64}}) {
      const auto inputs = operands(x, dtype);
      std::array<Tensor, 3> wide;
      for (size_t i = 0; i < 3; ++i) wide[i] = inputs[i].to(kF64);
      const Tensor weights = randn({x.b, x.h, x.t, x.e}, {kF64}).to(dtype), taken = rand({x.t, x.s}).gt(0.3),
                   added = randn({x.h, x.t, x.s}, {kF64}).to(dtype);
      for (const Tensor& mask : {Tensor(), taken, added})
        for (const double dropout : {0.0, 0.3}) {
          if (!mask.defined() && dropout == 0) continue;
          const AttentionOptions options{
              .dropout = dropout, .causal = !mask.defined(), .enable_gqa = true, .generator = &generator};
          const Tensor wide_mask = mask.defined() && mask.dtype() != kBool ? mask.to(kF64) : mask;
          const auto fused = gradients(inputs, weights, options, false, mask),
                     expected = gradients(wide, weights.to(kF64), options, true, wide_mask);
          for (size_t i = 0; i < 3; ++i) {
            const double size = expected[i].detach().abs().max().item<double>();
            EXPECT_LT(worst(fused[i], expected[i].detach()), tolerance(dtype) * std::max(1.0, size))
                << name(dtype) << " gradient " << i << " of " << x.t << " x " << x.s << ", dropout " << dropout
                << (mask.defined() ? " and a mask of " + std::string(name(mask.dtype())) : "");
          }
        }
    }
}

TEST(Attention, dropout_drops_its_share_and_the_backward_drops_the_same) {
  Generator generator(3);
  const Tensor q = zeros({1, 2, 64, 8}), k = zeros({1, 2, 512, 8}), v = ones({1, 2, 512, 4});
  // Equal weights over ones: a row is the share kept, scaled.
  const Tensor out = scaled_dot_product_attention(q, k, v, {}, {.dropout = 0.25, .generator = &generator});
  EXPECT_NEAR(out.mean().item<double>(), 1, 0.01);
  EXPECT_GT(out.std().item<double>(), 0.01);
  EXPECT_EQ(
      scaled_dot_product_attention(q, k, v, {}, {.dropout = 1.0, .generator = &generator}).abs().sum().item<double>(),
      0);
  for (const Shape& x : {Shape{2, 4, 2, 33, 70, 8, 8}, {1, 1, 1, 70, 1300, 4, 4}}) {
    const auto inputs = operands(x, kF64);
    const Tensor weights = randn({x.b, x.h, x.t, x.e}, {kF64});
    const AttentionOptions options{.dropout = 0.3, .causal = x.h > 1, .enable_gqa = true, .generator = &generator};
    const auto fused = gradients(inputs, weights, options, false), recorded = gradients(inputs, weights, options, true);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(worst(fused[i], recorded[i].detach()), 1e-10) << "gradient " << i;
  }
}

TEST(Attention, packed_attention_is_attention_of_its_parts) {
  for (const DType dtype : {kF64, kF32, kBF16}) {
    const int64_t heads = 3, d = 8;
    const Tensor qkv = randn({2, 70, 3 * heads * d}, {kF64}).to(dtype).requires_grad_();
    const Tensor out = packed_attention(qkv, heads, {.causal = true});
    const Tensor again = qkv.detach().clone().requires_grad_();
    const Tensor parts = again.view({2, 70, 3, heads, d});
    const auto part = [&](int64_t i) { return parts.select(2, i).transpose(1, 2); };
    const Tensor expected = scaled_dot_product_attention(part(0), part(1), part(2), {}, {.causal = true})
                                .transpose(1, 2)
                                .reshape({2, 70, heads * d});
    EXPECT_TRUE(out.eq(expected).all().item<bool>());
    const Tensor weights = randn({2, 70, heads * d}).to(dtype);
    out.mul(weights).sum().backward();
    expected.mul(weights).sum().backward();
    EXPECT_TRUE(qkv.grad().eq(again.grad()).all().item<bool>());
  }
  const std::vector<Tensor> inputs{randn({1, 3, 12}, {kF64}).requires_grad_()};
  const test::Function packed = [](const std::vector<Tensor>& x) {
    return packed_attention(x[0], 2, {.causal = true});
  };
  EXPECT_TRUE(test::gradcheck(packed, inputs));
  EXPECT_TRUE(test::gradgradcheck(packed, inputs));
}

TEST(Attention, memory_is_linear_in_length) {
  const auto peak = [](int64_t t) {
    std::vector<Tensor> leaves;
    for (int i = 0; i < 3; ++i) leaves.push_back(randn({1, 2, t, 16}).requires_grad_());
    const int64_t before = memory::stats(default_device()).allocated;
    memory::reset_peak(default_device());
    scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, {.causal = true}).sum().backward();
    return memory::stats(default_device()).peak_allocated - before;
  };
  const int64_t one = peak(1024), four = peak(4096);
  EXPECT_LT(four, 5 * one);
  EXPECT_LT(four, 4096 * 4096);  // bytes of one head's weights would be four times this
}

TEST(Attention, results_do_not_depend_on_the_number_of_threads) {
  const int before = cpu::threads();
  for (const DType dtype : {kF32, kBF16}) {
    const auto inputs = operands({3, 4, 2, 150, 150, 16, 16}, dtype);
    const Tensor weights = randn({3, 4, 150, 16}).to(dtype);
    std::vector<std::vector<Tensor>> results;
    for (const int threads : {1, 2, 5}) {
      cpu::set_threads(threads);
      results.push_back(gradients(inputs, weights, {.causal = true, .enable_gqa = true}, false));
      results.back().push_back(
          scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, {.enable_gqa = true}).contiguous());
    }
    cpu::set_threads(before);
    for (size_t r = 1; r < results.size(); ++r)
      for (size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(test::bytes_of(results[r][i].contiguous()) == test::bytes_of(results[0][i].contiguous()))
            << name(dtype) << i;
  }
}

TEST(Attention, wrong_operands_are_refused) {
  const Tensor x = ones({1, 2, 3, 4});
  EXPECT_THROW(scaled_dot_product_attention(x, ones({1, 2, 3, 5}), x), ShapeError);
  EXPECT_THROW(scaled_dot_product_attention(x, x, ones({1, 2, 2, 4})), ShapeError);
  EXPECT_THROW(scaled_dot_product_attention(x, ones({1, 3, 3, 4}), x), ShapeError);
  EXPECT_THROW(scaled_dot_product_attention(ones({1, 3, 3, 4}), x, x, {}, {.enable_gqa = true}), ShapeError);
  EXPECT_THROW(scaled_dot_product_attention(ones({4}), x, x), ShapeError);
  EXPECT_THROW(scaled_dot_product_attention(x, x, x, ones({2, 3}, {kBool})), ShapeError);
  EXPECT_THROW(scaled_dot_product_attention(x, x.to(kF64), x), DTypeError);
  EXPECT_THROW(scaled_dot_product_attention(x.to(kI64), x.to(kI64), x.to(kI64)), DTypeError);
  EXPECT_THROW(scaled_dot_product_attention(x, x, x, ones({3, 3}, {kI64})), DTypeError);
  EXPECT_THROW(scaled_dot_product_attention(x, x, x, ones({3, 3}, {kBool}), {.causal = true}), ValueError);
  EXPECT_THROW(scaled_dot_product_attention(x, x, x, {}, {.dropout = 1.5}), ValueError);
  EXPECT_THROW(scaled_dot_product_attention(x, Tensor(), x), ValueError);
  EXPECT_THROW(packed_attention(ones({1, 3, 10}), 2), ShapeError);
  EXPECT_THROW(packed_attention(ones({3, 12}), 2), ShapeError);
}

}  // namespace
}  // namespace lorry
