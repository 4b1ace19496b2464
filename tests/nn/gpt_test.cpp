#include "lorry/nn/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lorry/autograd/engine.h"
#include "lorry/device/cpu/team.h"
#include "lorry/ops/batch_invariant.h"
#include "lorry/ops/ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/host.h"

namespace lorry::nn {
namespace {

constexpr GPTConfig kSmallest{.vocab = 7, .context = 6, .layers = 2, .heads = 2, .width = 4};
constexpr GPTConfig kSmallestRotary{.vocab = 7, .context = 6, .layers = 2, .heads = 2, .width = 8, .rotary = true};

int64_t count(const Module& m) {
  int64_t total = 0;
  for (const Tensor& x : m.parameters()) total += x.numel();
  return total;
}

/// 12 l w^2 + 13 l w for the blocks, tables for tokens and for positions that are learned, and the last norm.
int64_t expected_count(const GPTConfig& c) {
  const int64_t rows = c.vocab + (c.rotary ? 0 : c.context) + 2;
  return 12 * c.layers * c.width * c.width + 13 * c.layers * c.width + rows * c.width;
}

TEST(GPT, presets_have_their_sizes) {
  EXPECT_EQ(count(GPT(gpt_preset("nano"))), 826112);
  for (const char* name : {"nano", "tiny", "small"})
    EXPECT_EQ(count(GPT(gpt_preset(name))), expected_count(gpt_preset(name))) << name;
  EXPECT_EQ(expected_count(gpt_preset("gpt2")), 124439808);
  EXPECT_THROW(gpt_preset("huge"), ValueError);
}

TEST(GPT, its_parameters_are_counted_without_building_it) {
  for (const bool bias : {true, false})
    for (const bool tie : {true, false})
      for (const bool rotary : {true, false}) {
        GPTConfig config{.vocab = 7, .context = 5, .layers = 3, .heads = 2, .width = 8};
        config.bias = bias;
        config.tie_weights = tie;
        config.rotary = rotary;
        EXPECT_EQ(parameter_count(config), count(GPT(config))) << bias << tie << rotary;
      }
}

/// The standard deviations of linear layers at the start are `inside`; where they write to the residual, residual.
void expect_start(const GPTConfig& config, double inside) {
  manual_seed(11);
  const GPT model(config);
  const double residual = inside / std::sqrt(8.0);
  for (const auto& [name, x] : model.named_parameters()) {
    const double std = x.detach().std().item<double>();
    if (name.ends_with("bias")) {
      EXPECT_EQ(x.detach().abs().max().item<double>(), 0) << name;
    } else if (name.find("norm") != std::string::npos) {
      EXPECT_EQ(x.detach().min().item<double>(), 1) << name;
    } else if (name.ends_with("projection.weight") || name.ends_with("down.weight")) {
      EXPECT_NEAR(std, residual, residual * 0.05) << name;
    } else {
      const double expected = name == "tokens.weight" || name == "positions.weight" ? 0.02 : inside;
      EXPECT_NEAR(std, expected, expected * 0.05) << name;
    }
  }
  // Untrained, every byte is about as likely as any other.
  EXPECT_NEAR(model.loss(randint(0, 256, {2, 128}), randint(0, 256, {2, 128})).item<double>(), std::log(256.0), 0.1);
}

TEST(GPT, starts_as_gpt2_does_or_as_its_width_says) {
  GPTConfig config = gpt_preset("nano");
  expect_start(config, 1 / std::sqrt(128.0));
  config.rotary = config.scale_embeddings = config.lecun_normal = false;
  expect_start(config, 0.02);
}

TEST(GPT, scaled_embeddings_enter_times_the_root_of_the_width) {
  GPTConfig config{.vocab = 7, .context = 6, .layers = 1, .heads = 2, .width = 8, .tie_weights = false};
  const GPT plain(config);
  config.scale_embeddings = true;
  const GPT scaled(config);
  const TensorMap state = plain.state_dict();
  for (const auto& [name, x] : scaled.state_dict()) {
    const NoGrad quiet;
    x.copy_(name == "tokens.weight" ? state.at(name) / std::sqrt(8.0) : state.at(name));
  }
  EXPECT_TRUE(allclose(scaled.forward(arange(6).view({1, 6})), plain.forward(arange(6).view({1, 6})), 1e-5, 1e-6));
}

TEST(GPT, a_seed_fixes_the_parameters) {
  const auto make = [] {
    manual_seed(3);
    return std::make_unique<GPT>(kSmallest);
  };
  const auto a = make(), b = make();
  const TensorMap left = a->state_dict(), right = b->state_dict();
  for (const auto& [name, x] : left) EXPECT_TRUE(x.eq(right.at(name)).all().item<bool>()) << name;
}

TEST(GPT, a_position_does_not_see_what_follows) {
  for (const GPTConfig& config : {kSmallest, kSmallestRotary}) {
    const GPT model(config, {.dtype = kF64});
    const Tensor tokens = randint(0, 7, {1, 6}), changed = tokens.clone();
    changed.narrow(1, 4, 2).copy_(tokens.narrow(1, 4, 2).add(1).remainder(7));
    const Tensor a = model.forward(tokens).detach(), b = model.forward(changed).detach();
    EXPECT_TRUE(a.narrow(1, 0, 4).eq(b.narrow(1, 0, 4)).all().item<bool>());
    EXPECT_FALSE(a.narrow(1, 4, 2).eq(b.narrow(1, 4, 2)).any().item<bool>());
  }
}

TEST(GPT, gradients_of_every_parameter_are_right) {
  for (const bool tied : {true, false}) {
    GPTConfig config = tied ? kSmallestRotary : kSmallest;
    config.tie_weights = tied;
    config.layers = 1;
    const GPT model(config, {.dtype = kF64});
    const Tensor tokens = randint(0, 7, {2, 3}), targets = randint(0, 7, {2, 3});
    EXPECT_EQ(model.parameters().size(), tied ? 15u : 17u);
    EXPECT_TRUE(test::gradcheck([&](const std::vector<Tensor>&) { return model.loss(tokens, targets).mul(10); },
                                model.parameters()));
  }
}

/// Rows of a flat batch: (sequence, position) pairs over tokens [sequences, t]. A negative sequence is padding.
PagedBatch flat_batch(const Tensor& tokens, const Tensor& block_table, const std::vector<std::pair<int, int>>& rows) {
  std::vector<int64_t> token;
  std::vector<int> slot, position;
  for (const auto& [s, p] : rows) {
    token.push_back(s < 0 ? 0 : tokens[s][p].item<int64_t>());
    slot.push_back(s);
    position.push_back(p);
  }
  const Dims n = {static_cast<int64_t>(rows.size())};
  return {from_data(token, n), from_data(position, n), from_data(slot, n), block_table};
}

/// Three sequences of 6 tokens, whose blocks of 4 positions lie in no order.
struct Paged {
  GPT model;
  Tensor tokens = randint(0, 7, {3, 6}), table = tensor({5, 0, 3, 6, 1, 2}).to(kI32).view({3, 2});
  PagedCache cache;

  Paged(const GPTConfig& config, DType dtype) : model(config, {.dtype = dtype}), cache(config, 7, 4, {.dtype = dtype}) {
    model.eval();
    for (const Tensor& x : model.parameters()) {
      const Tensor larger = x.detach();
      larger.mul_(5);  // so that attention is not nearly uniform
    }
  }
  Tensor logits(const std::vector<std::pair<int, int>>& rows) const {
    return model.forward(flat_batch(tokens, table, rows), cache);
  }
};

TEST(GPT, a_flat_batch_gives_what_whole_sequences_give) {
  for (const GPTConfig& config : {kSmallest, kSmallestRotary})
    for (const DType dtype : {kF64, kF32, kBF16}) {
      const Paged paged(config, dtype);
      const Tensor whole = paged.model.forward(paged.tokens).detach().to(kF64);
      const auto expect_logits = [&](const std::vector<std::pair<int, int>>& rows) {
        const Tensor logits = paged.logits(rows);
        EXPECT_FALSE(logits.requires_grad());
        for (size_t i = 0; i < rows.size(); ++i) {
          const auto [s, p] = rows[i];
          if (s < 0) continue;
          const double difference =
              logits[static_cast<int64_t>(i)].to(kF64).sub(whole[s][p]).abs().max().item<double>();
          EXPECT_LT(difference, dtype == kF64 ? 1e-12 : dtype == kF32 ? 1e-4 : 0.2) << name(dtype) << s << " " << p;
        }
      };
      expect_logits({{0, 0}, {0, 1}, {0, 2}, {2, 0}});           // a prompt, and the beginning of another
      expect_logits({{2, 1}, {-1, 0}, {0, 3}, {2, 2}, {1, 0}});  // they go on with padding, and a third begins
      expect_logits({{1, 3}, {1, 1}, {1, 2}, {0, 4}});           // in any order
      paged.model.prefill(flat_batch(paged.tokens, paged.table, {{2, 3}, {2, 4}, {0, 5}}), paged.cache);
      expect_logits({{2, 5}, {0, 5}});
    }
}

TEST(GPT, rows_have_the_same_bits_in_every_batch) {
  const BatchInvariant scope;
  for (const GPTConfig& config : {kSmallest, kSmallestRotary})
    for (const DType dtype : {kF32, kBF16}) {
      const Paged paged(config, dtype);
      std::vector<std::pair<int, int>> all;
      std::vector<Tensor> alone;
      for (int p = 0; p < 6; ++p)
        for (int s = 0; s < 3; ++s) {
          all.emplace_back(s, p);
          alone.push_back(paged.logits({{s, p}})[0]);
        }
      const Tensor together = paged.logits(all);
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(lorry::test::bytes_of(alone[i]) ==
                    lorry::test::bytes_of(together[static_cast<int64_t>(i)].contiguous()))
            << i;
    }
}

TEST(GPT, training_a_few_steps_lowers_the_loss) {
  manual_seed(1);
  GPT model({.vocab = 16, .context = 16, .layers = 2, .heads = 2, .width = 16});
  const Tensor tokens = arange(17).remainder(5).unsqueeze(0).expand({4, 17}), x = tokens.narrow(1, 0, 16),
               y = tokens.narrow(1, 1, 16);
  const double before = model.loss(x, y).item<double>();
  for (int step = 0; step < 30; ++step) {
    model.zero_grad();
    model.loss(x, y).backward();
    const NoGrad quiet;
    for (const Tensor& p : model.parameters()) p.sub_(p.grad().mul(0.5));
  }
  EXPECT_LT(model.loss(x, y).item<double>(), 0.5 * before);
}

TEST(GPT, a_training_step_has_the_same_bits_on_any_number_of_threads) {
  const int before = cpu::threads();
  const auto gradients = [](int threads) {
    cpu::set_threads(threads);
    manual_seed(2);
    GPTConfig config = gpt_preset("nano");
    config.layers = 2;
    config.dropout = 0.1;
    const GPT model(config);
    model.loss(randint(0, 256, {4, 100}), randint(0, 256, {4, 100})).backward();
    std::vector<Tensor> grads;
    for (const Tensor& p : model.parameters()) grads.push_back(p.grad());
    return grads;
  };
  const auto one = gradients(1), three = gradients(3);
  cpu::set_threads(before);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(lorry::test::bytes_of(one[i]) == lorry::test::bytes_of(three[i])) << i;
}

TEST(GPT, dropout_acts_in_training_only) {
  GPTConfig config = kSmallest;
  config.dropout = 0.5;
  GPT model(config);
  const Tensor tokens = randint(0, 7, {1, 6});
  EXPECT_FALSE(model.forward(tokens).eq(model.forward(tokens)).all().item<bool>());
  model.eval();
  EXPECT_TRUE(model.forward(tokens).eq(model.forward(tokens)).all().item<bool>());
}

TEST(GPT, it_runs_in_bf16) {
  GPT model(kSmallestRotary);
  model.to(kBF16);
  const Tensor loss = model.loss(randint(0, 7, {2, 6}), randint(0, 7, {2, 6}));
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), std::log(7.0), 0.3);
  for (const Tensor& x : model.parameters()) EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

TEST(GPT, rotary_positions_add_nothing_to_what_is_saved) {
  const GPT model(kSmallestRotary);
  const TensorMap state = model.state_dict();
  EXPECT_EQ(state.size(), model.parameters().size());
  EXPECT_FALSE(state.contains("positions.weight"));
}

TEST(GPT, rotary_positions_survive_every_conversion) {
  const Tensor tokens = randint(0, 7, {2, 6});
  for (const DType made : {kF32, kF64}) {
    GPT model(kSmallestRotary, {.dtype = made});
    model.eval();
    for (const Tensor& x : model.parameters()) {
      const Tensor larger = x.detach();
      larger.mul_(5);  // so that positions count
    }
    const Tensor before = model.forward(tokens).detach().to(kF64);
    for (const DType other : {kF64, kF32, kBF16, kF64}) {
      model.to(other);
      const Tensor got = model.forward(tokens).detach();
      EXPECT_EQ(got.dtype(), other);
      if (other == kBF16) break;  // which rounds the parameters for good
      EXPECT_LT(got.to(kF64).sub(before).abs().max().item<double>(), 1e-4) << name(made) << " as " << name(other);
    }
  }
}

TEST(GPT, impossible_configs_and_inputs_are_refused) {
  const auto with = [](auto change) {
    GPTConfig c = kSmallest;
    change(c);
    return c;
  };
  EXPECT_THROW(GPT(with([](GPTConfig& c) { c.width = 5; })), ValueError);
  EXPECT_THROW(GPT(with([](GPTConfig& c) { c.layers = 0; })), ValueError);
  EXPECT_THROW(GPT(with([](GPTConfig& c) {
                 c.rotary = true;
                 c.width = 6;
               })),
               ValueError);
  EXPECT_THROW(GPT(with([](GPTConfig& c) { c.vocab = -1; })), ValueError);
  EXPECT_THROW(GPT(with([](GPTConfig& c) { c.dropout = 2; })), ValueError);
  EXPECT_THROW(PagedCache(kSmallest, 0), ValueError);
  EXPECT_THROW(PagedCache(kSmallest, 1, 0), ValueError);
  const GPT model(kSmallest);
  const Tensor tokens = zeros({2, 6}, {kI64});
  EXPECT_THROW(model.forward(zeros({1, 7}, {kI64})), IndexError);
  EXPECT_THROW(model.forward(zeros({6}, {kI64})), ShapeError);
  EXPECT_THROW_IN_TIME(model.forward(full({1, 2}, 7, {kI64})), IndexError);
  EXPECT_THROW(model.forward(zeros({2, 3})), DTypeError);
  EXPECT_THROW(model.forward(Tensor()), ShapeError);
  EXPECT_THROW(model.loss(tokens, zeros({2, 5}, {kI64})), ShapeError);
  const Tensor i32 = zeros({1}, {kI32}), table = zeros({1, 2}, {kI32}), one = zeros({1}, {kI64});
  const PagedCache cache(kSmallest, 2, 8);
  EXPECT_NO_THROW(model.forward(PagedBatch{one, i32, i32, table}, cache));
  EXPECT_THROW(model.forward(PagedBatch{tokens, i32, i32, table}, cache), ShapeError);
  EXPECT_THROW_IN_TIME(model.forward(PagedBatch{one, full({1}, kSmallest.context, {kI32}), i32, table}, cache),
                       IndexError);
  EXPECT_THROW_IN_TIME(model.forward(PagedBatch{one, i32, full({1}, 1, {kI32}), table}, cache), IndexError);
  EXPECT_THROW_IN_TIME(model.forward(PagedBatch{one, i32, i32, full({1, 1}, 2, {kI32})}, cache), IndexError);
  EXPECT_THROW(model.forward(PagedBatch{one, i32, zeros({2}, {kI32}), table}, cache), ShapeError);
  GPTConfig deeper = kSmallest;
  ++deeper.layers;
  EXPECT_THROW(model.forward(PagedBatch{one, i32, i32, table}, PagedCache(deeper, 1)), ShapeError);
}

}  // namespace
}  // namespace lorry::nn
