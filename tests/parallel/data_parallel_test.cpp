// Data parallel training beside the same training by one rank: each rank also trains a model of its own on the whole
// batch, and both must have the same parameters.

#include "lorry/parallel/data_parallel.h"

#include <gtest/gtest.h>

#include "lorry/ops/dispatch/listener.h"
#include "tests/parallel/ranks.h"

namespace lorry::parallel {
namespace {

struct Net : nn::Layer<Net> {
  Net() { add("up", up), add("middle", middle), add("norm", norm), add("down", down), add("unused", unused); }
  Tensor forward(const Tensor& x) const { return down(norm(gelu(middle(gelu(up(x)))))); }
  Tensor loss(const Tensor& x, const Tensor& y) const { return forward(x).sub(y).square().mean(); }
  nn::Linear up{6, 32}, middle{32, 32};
  nn::LayerNorm norm{32};
  nn::Linear down{32, 3};
  nn::Linear unused{2, 2};
};

constexpr int kSteps = 4;
constexpr int64_t kRows = 24;  // of a batch, for any of 1, 2, 3 and 4 ranks

std::pair<Tensor, Tensor> batch_of(int step, Device device) {
  Generator generator(static_cast<uint64_t>(100 + step));
  const Tensor x = randn({kRows, 6}, {}, &generator);
  return {x.to(device), x.slice(1, 0, 3).mul(2).add(1).to(device)};
}
Tensor own_rows(const Tensor& x) {
  const int64_t rows = x.size(0) / world().size();
  return x.narrow(0, world().rank() * rows, rows);
}

std::unique_ptr<Net> new_net(uint64_t seed, Device device, DType dtype = kF32) {
  manual_seed(seed);
  auto net = std::make_unique<Net>();
  net->to(device);
  net->to(dtype);
  return net;
}

/// Trains by one rank on whole batches.
std::unique_ptr<Net> reference(Device device, DType dtype = kF32) {
  auto net = new_net(7, device, dtype);
  optim::AdamW optimizer(net->named_parameters(), {.lr = 1e-2});
  for (int step = 0; step < kSteps; ++step) {
    const auto [x, y] = batch_of(step, device);
    net->loss(x.to(dtype), y.to(dtype)).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return net;
}

void expect_near(const Net& got, const Net& expected, double tolerance) {
  for (const auto& [name, x] : expected.state_dict()) {
    const Tensor own = got.state_dict().at(name);
    const double difference = own.to(kF64).sub(x.to(kF64)).abs().max().item<double>();
    EXPECT_LE(name.starts_with("unused") ? 0 : difference, tolerance) << name;
    const Tensor all = all_gather(own.detach(), world());
    for (int r = 0; r < world().size(); ++r)
      EXPECT_TRUE(all.select(0, r).equal(own)) << name << " is not the same on rank " << r;
  }
}

class Buckets : public testing::TestWithParam<int64_t> {};

TEST_P(Buckets, training_is_that_of_one_rank) {
  for (const Device device : devices()) {
    const auto expected = reference(device);
    const auto net = new_net(static_cast<uint64_t>(7 + world().rank()), device);  // rank 0's is given to all
    DataParallel ranks(net->named_parameters(), world(), {.bucket_bytes = GetParam()});
    optim::AdamW optimizer(net->named_parameters(), {.lr = 1e-2});
    for (int step = 0; step < kSteps; ++step) {
      const auto [x, y] = batch_of(step, device);
      (net->loss(own_rows(x), own_rows(y)) * ranks.share()).backward();
      ranks.finish();
      EXPECT_EQ(net->unused.weight.grad().abs().max().item<float>(), 0) << "no rank produced it";
      optimizer.step();
      optimizer.zero_grad(step % 2 == 0);
    }
    expect_near(*net, *expected, 2e-6);
  }
}
INSTANTIATE_TEST_SUITE_P(DataParallel, Buckets, testing::Values(1, 1000, int64_t{25} << 20));

int g_copies = 0;
void count_copies(const door::CallView& call, void*&) {
  g_copies += call.op == Op::copy || call.op == Op::foreach_copy;
}

TEST(DataParallel, gradients_lie_in_the_buckets_and_nothing_is_copied_for_linear_layers) {
  const auto net = new_net(7, kCPU);
  DataParallel ranks(net->named_parameters(), world());
  const auto [x, y] = batch_of(0, kCPU);
  const auto backward = [&] {
    (net->loss(own_rows(x), own_rows(y)) * ranks.share()).backward();
    ranks.finish();
  };
  backward();  // the order of the next steps is known now
  net->zero_grad();
  backward();
  const Tensor first = net->up.weight.grad(), second = net->down.weight.grad();
  EXPECT_TRUE(first.storage().id() == second.storage().id()) << "both lie in the bucket";
  for (const auto& p : net->parameters()) p.set_grad({});
  {
    constexpr door::Listener kCounter{.bit = kUserMode, .before = count_copies};
    const door::ListenerScope listening(kCounter);
    g_copies = 0;
    backward();
  }
  EXPECT_EQ(net->up.weight.grad().data_ptr(), first.data_ptr());
  EXPECT_EQ(g_copies, 1) << "of the biases and the norm, in one";
}

TEST(DataParallel, accumulation_sends_once) {
  const auto expected = reference(kCPU);
  const auto net = new_net(7, kCPU);
  DataParallel ranks(net->named_parameters(), world(), {.bucket_bytes = 500});
  optim::AdamW optimizer(net->named_parameters(), {.lr = 1e-2});
  for (int step = 0; step < kSteps; ++step) {
    const auto [x, y] = batch_of(step, kCPU);
    const Tensor own_x = own_rows(x), own_y = own_rows(y);
    const int64_t half = own_x.size(0) / 2;
    const auto backward = [&](int64_t from) {
      (net->loss(own_x.narrow(0, from, half), own_y.narrow(0, from, half)) * (ranks.share() / 2)).backward();
    };
    {
      const DataParallel::NoSync no_sync(ranks);
      backward(0);
    }
    backward(half);
    ranks.finish();
    optimizer.step();
    optimizer.zero_grad();
  }
  expect_near(*net, *expected, 2e-6);
}

TEST(DataParallel, a_gradient_that_some_ranks_do_not_produce_counts_as_zeros) {
  const auto net = new_net(7, kCPU);
  DataParallel ranks(net->named_parameters(), world(), {.bucket_bytes = 500});
  for (int step = 0; step < 3; ++step) {
    if (world().rank() == step % world().size()) net->unused(ones({1, 2})).sum().backward();
    ranks.finish();
    EXPECT_TRUE(net->unused.weight.grad().equal(ones({2, 2}))) << net->unused.weight.grad();
    EXPECT_EQ(net->up.weight.grad().abs().max().item<float>(), 0);
    net->zero_grad();
  }
}

TEST(DataParallel, ranks_may_have_different_numbers_of_batches) {
  const auto net = new_net(7, kCPU);
  DataParallel ranks(net->named_parameters(), world());
  int steps = 0;
  for (int own = world().rank() + 1;; --own) {
    const int active = ranks.ranks_with_batch(own > 0);
    if (active == 0) break;
    EXPECT_EQ(active, world().size() - steps);
    if (own > 0) net->unused(ones({1, 2})).sum().mul(1.0 / active).backward();
    ranks.finish();
    EXPECT_NEAR(net->unused.weight.grad().sum().item<float>(), 4, 1e-6);
    net->zero_grad();
    ++steps;
  }
  EXPECT_EQ(steps, world().size());
}

TEST(DataParallel, gradients_of_16_bits_are_summed_in_f32_where_asked) {
  for (const Device device : devices()) {
    const auto expected = reference(device, kBF16);
    const auto net = new_net(7, device, kBF16);
    DataParallel ranks(net->named_parameters(), world(), {.reduce_in = kF32});
    optim::AdamW optimizer(net->named_parameters(), {.lr = 1e-2});
    for (int step = 0; step < kSteps; ++step) {
      const auto [x, y] = batch_of(step, device);
      (net->loss(own_rows(x).to(kBF16), own_rows(y).to(kBF16)) * ranks.share()).backward();
      ranks.finish();
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_near(*net, *expected, 0.1);
  }
}

TEST(DataParallel, refuses_what_it_cannot_do) {
  EXPECT_THROW(DataParallel({}, world()), ValueError);
  const Tensor x = ones({2}).requires_grad_();
  EXPECT_THROW(DataParallel({{"a", x}, {"b", x}}, world()), ValueError);
  EXPECT_THROW(DataParallel({{"a", x}}, world(), {.bucket_bytes = 0}), ValueError);
  if (world().size() > 1) {
    const Tensor own = ones({2 + world().rank() % 2}).requires_grad_();
    EXPECT_THROW(DataParallel({{"a", own}}, world()), ParallelError);
  }
  DataParallel ranks({{"a", x}}, world(), {.bucket_bytes = 1});
  x.sum().backward();
  ranks.finish();
  x.set_grad({});
  x.sum().backward();
  EXPECT_THROW(x.sum().backward(), GradError) << "its sum is on the way";
  ranks.finish();
}

}  // namespace
}  // namespace lorry::parallel
