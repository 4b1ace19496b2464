// Models that are split over the ranks beside whole ones, which every rank has too.

#include "lorry/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lorry/generate/engine.h"
#include "tests/parallel/ranks.h"

namespace lorry::parallel {
namespace {

/// For any of 1, 2, 3 and 4 ranks; the vocabulary is a multiple of none but 1.
nn::GPTConfig config_of(bool rotary, bool tie_weights, bool bias) {
  return {.vocab = 53,
          .context = 16,
          .layers = 2,
          .heads = 12,
          .width = 48,
          .bias = bias,
          .tie_weights = tie_weights,
          .rotary = rotary};
}
const std::vector<nn::GPTConfig> kConfigs{config_of(true, true, true), config_of(false, false, true),
                                          config_of(true, false, false)};

/// A whole model and one that is split, with the same parameters.
struct Pair {
  Pair(const nn::GPTConfig& config, Device device, DType dtype = kF32) {
    manual_seed(5);
    whole = std::make_unique<nn::GPT>(config, Options{.device = device});
    split = std::make_unique<nn::GPT>(config, Options{.device = device}, split_over(world()));
    for (const Tensor& x : whole->parameters()) {  // also those that begin with zeros or ones
      const NoGrad no_grad;
      x.add_(randn(x.sizes(), {.device = device}).mul(0.05));
    }
    whole->to(dtype), split->to(dtype);
    split->load_state_dict(split->own_state(whole->state_dict()));
  }
  std::unique_ptr<nn::GPT> whole, split;
};

std::pair<Tensor, Tensor> batch_of(uint64_t step, Device device) {
  Generator generator(step);
  const Tensor all = randint(0, 53, {3, 17}, {.dtype = kI64}, &generator);
  const Tensor targets = all.narrow(1, 1, 16).clone();
  targets[0][3] = -100;  // does not count
  return {all.narrow(1, 0, 16).contiguous().to(device), targets.to(device)};
}

double difference(const nn::TensorMap& a, const nn::TensorMap& b) {
  double most = 0;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, x] : a) {
    EXPECT_EQ(x.sizes(), b.at(name).sizes()) << name;
    most = std::max(most, x.to(kF64).sub(b.at(name).to(kF64)).abs().max().item<double>());
  }
  return most;
}

nn::TensorMap gradients(const nn::GPT& model) {
  nn::TensorMap all;
  for (const auto& [name, x] : model.named_parameters()) all[name] = x.grad();
  return all;
}

TEST(TensorParallel, losses_logits_and_gradients_are_those_of_the_whole) {
  for (const Device device : devices())
    for (const nn::GPTConfig& config : kConfigs) {
      const Pair pair(config, device);
      const auto [x, y] = batch_of(1, device);
      const Tensor expected = pair.whole->loss(x, y), got = pair.split->loss(x, y);
      EXPECT_NEAR(got.item<double>(), expected.item<double>(), 1e-5);
      expected.backward(), got.backward();
      EXPECT_LE(difference(pair.split->whole_state(gradients(*pair.split)), gradients(*pair.whole)), 2e-5);
      const NoGrad no_grad;
      EXPECT_LE(difference({{"logits", pair.split->forward(x)}}, {{"logits", pair.whole->forward(x)}}), 1e-4);
    }
}

TEST(TensorParallel, in_bf16_and_f64) {
  for (const Device device : devices()) {
    const auto [x, y] = batch_of(2, device);
    for (const DType dtype : {kBF16, kF64}) {
      const Pair pair(kConfigs[0], device, dtype);
      const Tensor expected = pair.whole->loss(x, y), got = pair.split->loss(x, y);
      EXPECT_EQ(got.dtype(), expected.dtype());
      EXPECT_NEAR(got.item<double>(), expected.item<double>(), dtype == kF64 ? 1e-10 : 2e-2);
      expected.backward(), got.backward();
      EXPECT_LE(difference(pair.split->whole_state(gradients(*pair.split)), gradients(*pair.whole)),
                dtype == kF64 ? 1e-10 : 2e-2);
    }
  }
}

TEST(TensorParallel, many_steps_have_the_losses_of_one_rank) {
  const uint64_t steps = world().size() <= 2 ? 200 : 30;  // more ranks than processors take their time
  for (const Device device : devices()) {
    const Pair pair(kConfigs[0], device);
    optim::AdamW whole(pair.whole->named_parameters(), {.lr = 1e-3}),
        split(pair.split->named_parameters(), {.lr = 1e-3});
    for (uint64_t i = 0; i < steps; ++i) {
      const auto [x, y] = batch_of(i, device);
      const Tensor expected = pair.whole->loss(x, y), got = pair.split->loss(x, y);
      ASSERT_NEAR(got.item<double>(), expected.item<double>(), 1e-5) << "step " << i;
      expected.backward(), got.backward();
      const Tensor norm = whole.step({.max_norm = 0.5}),
                   own_norm = step(split, *pair.split, world(), {.max_norm = 0.5});
      ASSERT_NEAR(own_norm.item<double>(), norm.item<double>(), 1e-3) << "step " << i;
      whole.zero_grad(), split.zero_grad();
    }
    // What every rank has whole is the same on all of them.
    for (const auto& [name, x] : pair.split->named_parameters()) {
      if (nn::GPT::split_rule(name)) continue;
      const Tensor all = all_gather(x.detach(), world());
      for (int r = 0; r < world().size(); ++r) EXPECT_TRUE(all.select(0, r).equal(x.detach())) << name;
    }
  }
}

TEST(TensorParallel, states_are_split_and_joined_to_the_bit) {
  const Pair pair(kConfigs[1], kCPU);
  EXPECT_EQ(difference(pair.split->whole_state(pair.split->state_dict()), pair.whole->state_dict()), 0);
  optim::AdamW optimizer(pair.split->named_parameters(), {});
  const auto [x, y] = batch_of(1, kCPU);
  pair.split->loss(x, y).backward();
  optimizer.step();
  const optim::TensorMap own = optimizer.state_dict(), whole = pair.split->whole_state(own);
  EXPECT_EQ(whole.at("tokens.weight.exp_avg").sizes(), (Dims{53, 48}));
  EXPECT_EQ(difference(pair.split->own_state(whole), own), 0);
  EXPECT_THROW(static_cast<void>(pair.split->own_state({{"head.exp_avg", zeros({53, 48}, {.dtype = kU8})}})),
               ValueError);
}

TEST(TensorParallel, ranks_begin_with_parts_of_one_model) {
  manual_seed(9);
  const nn::GPT model(kConfigs[0], {}, split_over(world()));
  const Tensor all = all_gather(model.blocks[0].mlp.up.weight.detach(), world());
  for (int r = 1; r < world().size(); ++r) EXPECT_FALSE(all.select(0, r).equal(all.select(0, 0))) << "the same part";
  const Tensor norm = all_gather(model.blocks[0].norm1.weight.detach(), world());
  EXPECT_TRUE(norm.equal(ones_like(norm)));
  const Tensor draw = all_gather(randn({4}), world());
  for (int r = 1; r < world().size(); ++r)
    EXPECT_TRUE(draw.select(0, r).equal(draw.select(0, 0))) << "the generators go on together";
}

TEST(TensorParallel, texts_are_those_of_the_whole_model) {
  for (const Device device : devices()) {
    const Pair pair(kConfigs[0], device);
    std::vector<generate::Request> requests;
    for (int64_t i = 0; i < 3; ++i)
      requests.push_back({.tokens = {i, 7, 3 * i + 1}, .limit = 30, .sampling = {.temperature = i == 2 ? 0.8 : 0.0}});
    const generate::EngineOptions options{.sequences = 4, .block_size = 4};
    EXPECT_EQ(generate::generate(*pair.split, requests, options), generate::generate(*pair.whole, requests, options));
  }
}

TEST(TensorParallel, targets_that_do_not_count) {
  const Pair pair(kConfigs[0], kCPU);
  const auto [x, y] = batch_of(1, kCPU);
  const Tensor none = full_like(y, int64_t{-100});
  const Tensor loss = pair.split->loss(x, none);
  EXPECT_TRUE(std::isnan(loss.item<float>())) << "as that of the whole";
  loss.backward();
  for (const auto& [name, gradient] : gradients(*pair.split)) EXPECT_EQ(gradient.abs().max().item<float>(), 0) << name;
}

TEST(TensorParallel, a_step_with_infinities_is_left_out_by_all_ranks) {
  const Pair pair(kConfigs[0], kCPU);
  optim::SGD optimizer(pair.split->named_parameters(), {.lr = 0.1});
  const auto [x, y] = batch_of(1, kCPU);
  const Tensor before = pair.split->norm.weight.detach().clone();
  pair.split->loss(x, y).backward();
  if (world().rank() == 0) pair.split->blocks[0].mlp.up.weight.grad().fill_(INFINITY);
  step(optimizer, *pair.split, world(), {.skip_nonfinite = true, .zero_grad = true});
  EXPECT_TRUE(pair.split->norm.weight.detach().equal(before));
  EXPECT_EQ(pair.split->norm.weight.grad().abs().max().item<float>(), 0);
  pair.split->loss(x, y).backward();
  step(optimizer, *pair.split, world(), {.scale = full({}, 2.0, {.dtype = kF64})});
  EXPECT_FALSE(pair.split->norm.weight.detach().equal(before));
}

TEST(TensorParallel, refuses_what_it_cannot_do) {
  if (world().size() == 1) GTEST_SKIP() << "one rank";
  const auto split = split_over(world());
  EXPECT_THROW(nn::GPT({.vocab = 53, .heads = 1, .width = 48}, {}, split), ValueError) << "one head";
  EXPECT_THROW(nn::GPT({.vocab = 53, .heads = 12, .width = 48, .dropout = 0.1}, {}, split), ValueError);
  EXPECT_THROW(nn::GPT({.vocab = 1, .heads = 12, .width = 48}, {}, split), ValueError);
  const Pair pair(kConfigs[0], kCPU);
  const auto [x, y] = batch_of(1, kCPU);
  for (const int64_t wrong : {int64_t{53}, int64_t{54}, int64_t{-1}, int64_t{1} << 40}) {
    const Tensor tokens = x.clone();
    tokens[1][2] = wrong;
    EXPECT_THROW(static_cast<void>(pair.split->loss(tokens, y)), IndexError) << "a token, on every rank";
  }
  for (const int64_t wrong : {int64_t{53}, int64_t{-1}}) {
    const Tensor targets = y.clone();
    targets[1][2] = wrong;
    EXPECT_THROW(static_cast<void>(pair.split->loss(x, targets)), IndexError) << "a target, on every rank";
  }
  manual_seed(static_cast<uint64_t>(world().rank()));
  EXPECT_THROW(nn::GPT(kConfigs[0], {}, split), ParallelError) << "other random numbers";
  EXPECT_THROW(generate::Engine(*pair.split, {.buckets = {.policy = replay::Policy::latency}}), ValueError);
  EXPECT_THROW(static_cast<void>(pair.split->forward(x)), GradError) << "logits of all ranks have no gradient";
}

}  // namespace
}  // namespace lorry::parallel
