#include "lorry/autograd/checkpoint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lorry/autograd/engine.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/batch_invariant.h"
#include "lorry/ops/ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/host.h"
#include "tests/support/tensors.h"

namespace lorry {
namespace {

using autograd::checkpoint;
using test::leaf;
using test::read;

Tensor layer(const Tensor& x, const Tensor& w) { return x.mul(w).sin().mul(x); }

TEST(Checkpoint, gradients_are_those_of_the_plain_function_to_the_bit) {
  const Tensor x = leaf({3}, {.1, .2, .3}), w = leaf({3}, {.4, .5, .6});
  layer(layer(x, w), w).sum().backward();
  const auto gx = read(x.grad()), gw = read(w.grad());
  x.set_grad({});
  w.set_grad({});
  const Tensor h = checkpoint([&] { return layer(x, w); });
  checkpoint([&] { return layer(h, w); }).sum().backward();
  EXPECT_EQ(read(x.grad()), gx);
  EXPECT_EQ(read(w.grad()), gw);
}

TEST(Checkpoint, the_function_runs_once_more_and_only_for_gradients) {
  const Tensor x = leaf({2}, {1, 2});
  int runs = 0;
  const Tensor y = checkpoint([&] {
    ++runs;
    return layer(x, x);
  });
  EXPECT_EQ(runs, 1);
  y.sum().backward({}, true);
  EXPECT_EQ(runs, 2);
  const auto once = read(x.grad());
  y.sum().backward();
  EXPECT_EQ(read(x.grad()), (std::vector<double>{2 * once[0], 2 * once[1]}));
  const NoGrad quiet;
  checkpoint([&] {
    ++runs;
    return layer(x, x);
  });
  EXPECT_EQ(runs, 3);
}

TEST(Checkpoint, nested_regions_grad_and_second_derivatives_agree_with_numbers) {
  const auto f = [](const std::vector<Tensor>& in) {
    return checkpoint([=] {
      const Tensor h = checkpoint([=] { return layer(in[0], in[1]); });
      return layer(h, in[1]).exp();
    });
  };
  const std::vector<Tensor> inputs{leaf({2}, {.3, -.4}), leaf({2}, {.5, .6})};
  EXPECT_TRUE(test::gradcheck(f, inputs));
  EXPECT_TRUE(test::gradgradcheck(f, inputs));
}

TEST(Checkpoint, random_numbers_are_drawn_again_as_they_were) {
  const Tensor x = leaf({64}, std::vector<double>(64, 1.0));
  manual_seed(5);
  Tensor mask;
  const Tensor y = checkpoint([&] {
    const Tensor m = rand({64}, {kF64});
    if (!mask.defined()) mask = m;
    return x.mul(m).mul(m);
  });
  const auto after_first = default_generator().state();
  y.sum().backward();
  EXPECT_EQ(read(x.grad()), read(mask.mul(mask)));
  EXPECT_EQ(default_generator().state(), after_first);
}

TEST(Checkpoint, the_second_run_is_in_the_mode_of_the_first) {
  const Tensor x = randn({3, 70}).requires_grad_(), w = randn({90, 70}).requires_grad_();
  std::vector<std::string> gradients;
  std::vector<bool> modes;
  for (const bool checkpointed : {false, true}) {
    const auto f = [&] {
      modes.push_back(batch_invariant());
      return linear(linear(x, w).tanh(), w.t().contiguous()).tanh();
    };
    Tensor y;
    {
      const BatchInvariant scope;
      y = checkpointed ? checkpoint(f) : f();
    }
    y.sum().backward();
    gradients.push_back(test::bytes_of(x.grad()) + test::bytes_of(w.grad()));
    x.set_grad({}), w.set_grad({});
  }
  EXPECT_EQ(modes, std::vector<bool>(3, true));
  EXPECT_TRUE(gradients[0] == gradients[1]);
}

TEST(Checkpoint, memory_between_the_passes_is_the_regions_inputs_alone) {
  const Tensor x = rand({1 << 18}).requires_grad_();
  const auto held = [&](bool dropped) {
    const auto body = [](const Tensor& h) { return h.sin().exp().sin().exp().sin(); };
    const int64_t before = memory::stats(default_device()).allocated;
    Tensor h = x;
    for (int i = 0; i < 4; ++i) h = dropped ? checkpoint([h, body] { return body(h); }) : body(h);
    return memory::stats(default_device()).allocated - before;
  };
  EXPECT_LE(held(true) * 2, held(false));
}

TEST(Checkpoint, an_overwritten_capture_is_refused) {
  const Tensor x = leaf({2}, {1, 2}), w = leaf({2}, {3, 4});
  const Tensor y = checkpoint([&] { return x.mul(w); });
  {
    const NoGrad quiet;
    w.mul_(2);
  }
  EXPECT_THROW(y.sum().backward(), GradError);
}

TEST(Checkpoint, a_second_run_that_throws_leaves_the_random_numbers_where_they_were) {
  const Tensor x = leaf({2}, {1, 2});
  int runs = 0;
  const Tensor y = checkpoint([&] {
    require<ValueError>(runs++ == 0, "enough");
    return x.mul(rand({2}, {kF64})).mul(x);
  });
  const auto before = default_generator().state();
  EXPECT_THROW(y.sum().backward(), ValueError);
  EXPECT_EQ(default_generator().state(), before);
}

TEST(Checkpoint, a_function_that_changes_its_mind_is_refused) {
  const Tensor x = leaf({2}, {1, 2});
  int runs = 0;
  const Tensor y = checkpoint([&] { return runs++ == 0 ? x.mul(x) : x.mul(x).mul(x); });
  EXPECT_THROW(y.sum().backward(), GradError);
}

TEST(Checkpoint, threads_that_walk_one_region_get_gradients_or_a_grad_error) {
  for (int round = 0; round < 100; ++round) {
    const Tensor z = leaf({8}, std::vector<double>(8, 0.3));
    const Tensor y = autograd::checkpoint([&] {
      Tensor x = z;
      for (int i = 0; i < 6; ++i) x = x.sin().exp();
      return x;
    });
    const Tensor loss = y.sum();
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&] {
        try {
          loss.backward();
          ++done;
        } catch (const GradError&) {
        }
      });
    for (auto& t : threads) t.join();
    EXPECT_GE(done, 1);
  }
}

}  // namespace
}  // namespace lorry
