// When buckets are captured, and how much memory their graphs may take.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lorry/lorry.h"
#include "lorry/memory/allocate.h"
#include "tests/support/message.h"
#include "tests/support/sanitizer.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

using replay::BucketSet;
using replay::BucketStats;
using replay::Capture;
using replay::Execution;
using replay::Policy;

std::vector<int64_t> captured(const std::vector<BucketStats>& buckets) {
  std::vector<int64_t> sizes;
  for (const BucketStats& bucket : buckets)
    if (bucket.captured) sizes.push_back(bucket.size);
  return sizes;
}

TEST(Capture, at_first_use_captures_what_is_used) {
  const NoGrad quiet;
  std::vector<int64_t> ran;
  const auto f = [&](const Tensor& x) { return ran.push_back(x.size(0)), (x * 2 + 1).exp(); };
  BucketSet set(f, {.sizes = {1, 4, 8}, .capture = Capture::at_first_use, .warm_up = 1});
  set.prepare(ones({3, 5}));
  EXPECT_TRUE(ran.empty());
  EXPECT_TRUE(captured(set.stats()).empty());
  const Tensor x = randn({3, 5});
  EXPECT_TRUE(set(x).equal((x * 2 + 1).exp()));
  EXPECT_EQ(ran, (std::vector<int64_t>{4, 4}));  // warm-up and capture
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{4}));
  set(ones({4, 5}));
  EXPECT_EQ(ran.size(), 2u);
  set(ones({1, 5}));
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{1, 4}));
}

TEST(Capture, at_first_use_measures_what_is_used) {
  const NoGrad quiet;
  BucketSet set([](const Tensor& x) { return x * 2; },
                {.sizes = {1, 4}, .policy = Policy::latency, .capture = Capture::at_first_use});
  set(ones({3, 5}));
  EXPECT_EQ(set.stats()[0].measured_us[0], 0);
  EXPECT_GT(set.stats()[1].measured_us[0], 0);
}

// ---- in the background ----------------------------------------------------------------------------------------------

/// Lets another thread go on.
struct Gate {
  std::atomic<bool> open{false};
  void wait() const {
    while (!open) std::this_thread::yield();
  }
};

TEST(Background, calls_run_on_their_own_arguments_until_all_is_captured) {
  const NoGrad quiet;
  const auto here = std::this_thread::get_id();
  Gate gate;
  std::vector<int64_t> own, others;
  const Tensor w = randn({5});
  const auto f = [&](const Tensor& x) {
    if (std::this_thread::get_id() != here) gate.wait();
    (std::this_thread::get_id() == here ? own : others).push_back(x.size(0));
    return (x * w + 1).tanh();
  };
  BucketSet set(f, {.sizes = {2, 8, 4}, .capture = Capture::in_background, .warm_up = 1});
  for (const int64_t n : {3, 8, 1}) {
    const Tensor x = randn({n, 5});
    EXPECT_TRUE(set(x).equal((x * w + 1).tanh()));
  }
  EXPECT_EQ(own, (std::vector<int64_t>{3, 8, 1}));  // not padded
  gate.open = true;
  set.wait();
  EXPECT_EQ(others, (std::vector<int64_t>{8, 8, 4, 4, 2, 2}));
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{2, 4, 8}));
  for (const int64_t n : {3, 8, 1}) {
    const Tensor x = randn({n, 5});
    EXPECT_TRUE(set(x).equal((x * w + 1).tanh()));
  }
  EXPECT_EQ(own.size(), 3u);
  set.wait();  // again
}

TEST(Background, calls_and_captures_do_not_disturb_each_other) {
  const NoGrad quiet;
  const BatchInvariant invariant;  // calls are padded or not
  const nn::Linear up(24, 48), down(48, 8);
  const auto f = [&](const Tensor& x) { return softmax(down(gelu(up(x))), -1); };
  for (const Execution execution : {Execution::graph, Execution::both, Execution::compiled}) {
    BucketSet set(f, {.sizes = {1, 2, 3, 4, 6, 8, 12, 16}, .execution = execution, .capture = Capture::in_background});
    for (int call = 0; call < 200; ++call) {
      const Tensor x = randn({1 + call % 16, 24});
      EXPECT_TRUE(set(x).equal(f(x))) << call;
      if (call % 50 == 0) set.stats();
    }
    set.wait();
    int64_t hits = 0;
    for (const BucketStats& bucket : set.stats()) hits += bucket.hits;
    EXPECT_LE(hits, 200);
    const Tensor x = randn({5, 24});
    EXPECT_TRUE(set(x).equal(f(x)));
  }
}

TEST(Background, runs_the_function_in_the_modes_of_the_thread_that_prepared) {
  const auto here = std::this_thread::get_id();
  std::atomic<bool> same{true}, ran{false};
  const auto f = [&](const Tensor& x) {
    if (std::this_thread::get_id() != here) {
      ran = true;
      if (grad_enabled() || !inference_enabled() || !batch_invariant() ||
          default_device() != Device{DeviceType::meta} || foreach::current_strategy() != Strategy::per_tensor)
        same = false;
    }
    return x * 2;
  };
  BucketSet set(f, {.sizes = {2}, .capture = Capture::in_background, .device = kCPU});
  const Tensor x = ones({2, 3}, {.device = kCPU});
  {
    const InferenceMode inference;
    const BatchInvariant invariant;
    const foreach::StrategyScope strategy(Strategy::per_tensor);
    set_default_device({DeviceType::meta});
    set.prepare(x);
    set_default_device(kCPU);
  }
  set.wait();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(same);
  const InferenceMode inference;
  EXPECT_TRUE(set(x).equal(x * 2));
}

TEST(Background, the_next_call_reports_an_error) {
  const NoGrad quiet;
  const auto here = std::this_thread::get_id();
  const auto f = [&](const Tensor& x) {
    if (std::this_thread::get_id() != here && x.size(0) == 4) return x * x.sum().item<float>();
    return x * 2;
  };
  BucketSet set(f, {.sizes = {2, 4, 8}, .capture = Capture::in_background});
  set.prepare(ones({2, 3}));
  while (captured(set.stats()) != std::vector<int64_t>{8}) std::this_thread::yield();
  std::string what;
  for (int call = 0; call < 100000 && what.empty(); ++call) {
    try {
      EXPECT_TRUE(set(ones({2, 3})).equal(full({2, 3}, 2.0)));
    } catch (const CaptureError& error) {
      what = error.what();
    }
  }
  EXPECT_NE(what.find("item: the host reads"), std::string::npos) << what;
  EXPECT_NO_THROW(set.wait());  // it is reported once
  for (const int64_t n : {2, 4, 8}) EXPECT_TRUE(set(ones({n, 3})).equal(full({n, 3}, 2.0)));
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{8}));
  BucketSet waits(f, {.sizes = {4}, .capture = Capture::in_background});
  waits.prepare(ones({2, 3}));
  EXPECT_THROW(waits.wait(), CaptureError);
  EXPECT_NO_THROW(waits.wait());
}

TEST(Background, the_thread_ends_with_the_set) {
  const NoGrad quiet;
  const auto here = std::this_thread::get_id();
  Gate gate;
  std::atomic<int> captures{0};
  const auto f = [&](const Tensor& x) {
    if (std::this_thread::get_id() != here) gate.wait(), ++captures;
    return x * 2;
  };
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    gate.open = true;
  });
  {
    BucketSet set(f, {.capture = Capture::in_background, .warm_up = 0});
    set.prepare(ones({2, 3}));
  }  // waits for the size that the thread is at
  EXPECT_EQ(gate.open, captures > 0);
  EXPECT_LE(captures, 1);
  later.join();
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/// A function whose memory grows with the batch.
Tensor wide(const Tensor& x) { return (x * 2).exp().sum({-1}); }
constexpr int64_t kWide = 1000000;

/// A function of many kernels, whose graph takes more than what they compute in.
Tensor deep(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 300; ++i) y = y * 0.5 + 1;
  return y;
}

/// The figures of a bucket alone.
BucketStats alone(Tensor (*f)(const Tensor&), int64_t size, int64_t width) {
  BucketSet set(f, {.sizes = {size}});
  set.prepare(ones({1, width}));
  return set.stats()[0];
}

/// Where graphs and pools have exact sizes.
class MemoryBudget : public testing::Test {
 protected:
  void SetUp() override {
    if (!default_device().is_cpu()) GTEST_SKIP() << "a GPU's driver takes memory in pieces";
    if (kAddressSanitizer) GTEST_SKIP() << "pools keep nothing under AddressSanitizer";
  }
};

TEST_F(MemoryBudget, that_is_enough_changes_nothing) {
  const NoGrad quiet;
  int64_t bytes = 0, apart = 0;
  BucketSet free(wide, {.sizes = {1, 4, 8}});
  free.prepare(ones({1, kWide}));
  for (const BucketStats& bucket : free.stats()) bytes += bucket.bytes;
  for (const int64_t size : {1, 4, 8}) apart += alone(wide, size, kWide).bytes;
  EXPECT_GE(bytes, 2 * 8 * kWide * 4);
  EXPECT_LT(bytes, apart);  // they share a pool
  BucketSet set(wide, {.sizes = {1, 4, 8}, .memory_budget = bytes});
  set.prepare(ones({1, kWide}));
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{1, 4, 8}));
}

TEST_F(MemoryBudget, leaves_out_a_bucket_that_exceeds_it_alone) {
  const NoGrad quiet;
  const int64_t budget = alone(wide, 4, kWide).bytes + alone(wide, 1, kWide).graph.bytes;
  for (const Capture capture : {Capture::at_start, Capture::at_first_use, Capture::in_background}) {
    BucketSet set(wide, {.sizes = {1, 4, 8}, .capture = capture, .memory_budget = budget});
    for (const int64_t n : {1, 8, 4, 3, 8, 1, 4, 1}) {
      const Tensor x = randn({n, kWide});
      EXPECT_TRUE(set(x).equal(wide(x)));
      set.wait();
    }
    EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{1, 4})) << static_cast<int>(capture);
    EXPECT_EQ(set.stats()[2].bytes, 0);
  }
}

TEST_F(MemoryBudget, is_enough_in_whatever_order_sizes_are_used) {
  const NoGrad quiet;
  const BucketStats one = alone(wide, 1, kWide), four = alone(wide, 4, kWide), eight = alone(wide, 8, kWide);
  BucketSet set(wide, {.sizes = {1, 4, 8},
                       .capture = Capture::at_first_use,
                       .memory_budget = eight.bytes + one.graph.bytes + four.graph.bytes});
  for (const int64_t n : {1, 4, 8, 1, 4}) set(ones({n, kWide}));  // the pool of the small ones is no use to the large
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{1, 4, 8}));
}

TEST_F(MemoryBudget, is_given_to_the_buckets_that_are_used_most) {
  const NoGrad quiet;
  const BucketStats one = alone(deep, 3, 5);
  ASSERT_GT(one.graph.bytes, 100000);
  for (const Capture capture : {Capture::at_start, Capture::at_first_use, Capture::in_background}) {
    BucketSet set(deep, {.sizes = {1, 2, 3}, .capture = capture, .memory_budget = one.bytes + one.graph.bytes * 3 / 2});
    set.prepare(ones({1, 5}));
    set.wait();
    const auto call = [&](int64_t n, int times) {
      for (int i = 0; i < times; ++i) {
        const Tensor x = randn({n, 5});
        EXPECT_TRUE(set(x).equal(deep(x)));
        const auto stats = set.stats();
        EXPECT_LE(captured(stats).size(), 2u);
      }
    };
    using Sizes = std::vector<int64_t>;
    call(3, 3), call(2, 2);
    EXPECT_EQ(captured(set.stats()), (Sizes{2, 3}));
    call(1, 10);
    EXPECT_EQ(captured(set.stats()), (Sizes{2, 3}));  // not used clearly more
    call(1, 40);
    EXPECT_EQ(captured(set.stats()), (Sizes{1, 3}));  // that of 2 was used least
    for (int turn = 0; turn < 20; ++turn) {
      call(2, 1), call(3, 1);
      EXPECT_EQ(captured(set.stats()), (Sizes{1, 3}));  // they do not take turns
    }
    call(2, 150);
    EXPECT_EQ(captured(set.stats()), (Sizes{1, 2}));
    EXPECT_EQ(set.stats()[2].bytes, 0);
  }
}

TEST_F(MemoryBudget, leaves_compiled_what_was_both) {
  const NoGrad quiet;
  int runs = 0;
  const auto f = [&](const Tensor& x) { return ++runs, wide(x); };
  BucketSet set(f, {.sizes = {1, 8}, .execution = Execution::both, .memory_budget = alone(wide, 1, kWide).bytes});
  set.prepare(ones({1, kWide}));
  EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{1}));
  const int before = runs;
  const Tensor x = randn({8, kWide});
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(set(x).equal(wide(x)));
  EXPECT_EQ(runs, before);
}

TEST_F(MemoryBudget, says_how_much_the_smallest_graph_needs) {
  const NoGrad quiet;
  const int64_t needed = alone(wide, 2, kWide).bytes;
  for (const Capture capture : {Capture::at_start, Capture::at_first_use}) {
    BucketSet set(wide, {.sizes = {2, 4}, .capture = capture, .memory_budget = 5});
    for (int call = 0; call < 2; ++call)
      EXPECT_EQ(message<ValueError>([&] {
                  set(ones({2, kWide}));
                }),
                fmt::format("BucketSet: memory_budget is too small for a single graph; got 5 bytes; the smallest "
                            "bucket (2) needs {}; give more, or choose Execution::eager or compiled",
                            needed));
  }
}

TEST_F(MemoryBudget, memory_of_dropped_graphs_returns) {
  const NoGrad quiet;
  const memory::Stats before = memory::stats(kCPU);
  {
    BucketSet set(deep, {.sizes = {1, 2}, .memory_budget = alone(deep, 2, 5).bytes});
    set.prepare(ones({1, 5}));
    EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{2}));
    for (int call = 0; call < 30; ++call) set(ones({1, 5}));
    EXPECT_EQ(captured(set.stats()), (std::vector<int64_t>{1}));
  }
  EXPECT_EQ(memory::stats(kCPU).allocated, before.allocated);
}

TEST(PoolMemory, pools_tell_what_they_have_reserved) {
  const memory::Pool pool(kCPU);
  EXPECT_EQ(pool.reserved(), 0);
  void* block = nullptr;
  {
    const memory::PoolScope scope(pool);
    block = memory::allocate(kCPU, 5 << 20);
  }
  EXPECT_GE(pool.reserved(), 5 << 20);
  EXPECT_LE(pool.reserved(), memory::stats(kCPU).reserved);
  memory::release(kCPU, block, 5 << 20);
}

TEST(Capture, a_function_that_writes_its_own_memory_is_told_of_trials) {
  const NoGrad quiet;
  for (const BucketOptions& how : {
           BucketOptions{},
           BucketOptions{.execution = Execution::both},
           BucketOptions{.execution = Execution::compiled, .capture = Capture::at_first_use},
           BucketOptions{.policy = Policy::latency},
           BucketOptions{.capture = Capture::at_first_use, .memory_budget = 2'200'000},
       }) {
    const Tensor count = zeros({8});
    Tensor saved;
    BucketOptions options = how;
    options.sizes = {2, 8};
    int depth = 0;
    options.trial = [&](bool begins) {
      depth += begins ? 1 : -1;
      if (begins)
        saved = count.clone();
      else
        count.copy_(saved);
    };
    BucketSet step([&](int64_t rows) { count.narrow(0, 0, rows).add_(1); }, options);
    for (const int rows : {1, 8, 7, 2}) step(rows);
    EXPECT_EQ(count.to_vector<float>(), (std::vector<float>{4, 4, 2, 2, 2, 2, 2, 2}));
    EXPECT_EQ(depth, 0);
  }
  int calls = 0;
  BucketSet bad([](int64_t) { ones({1}).item<float>(); }, {.sizes = {1}, .trial = [&](bool) { ++calls; }});
  EXPECT_THROW(bad.prepare(1), CaptureError);
  EXPECT_EQ(calls, 2);
}

TEST(Capture, a_followed_tensor_that_changes_leads_to_one_run_more_and_no_other) {
  const NoGrad quiet;
  const Tensor state = zeros({1});
  Tensor w = ones({4}), saved;
  const auto trial = [&](bool begins) {
    if (begins)
      saved = state.clone();
    else
      state.copy_(saved);
  };
  BucketSet step([&](int64_t) { state.add_(w.sum()); }, {.sizes = {1}, .trial = trial, .follow = {{"w", w}}});
  step(1);
  w.set_data(ones({4}));  // other memory
  step(1);
  EXPECT_EQ(state.item<float>(), 8);
  EXPECT_GT(step.stats()[0].graph.rebound, 0);
  w.set_data(ones({5}).narrow(0, 1, 4));  // another alignment
  step(1);
  EXPECT_EQ(state.item<float>(), 12);
  w.set_data(ones({6}));  // another shape
  step(1);
  EXPECT_EQ(state.item<float>(), 18);
  step(1);
  EXPECT_EQ(state.item<float>(), 24);
}

}  // namespace
}  // namespace lorry::test
