// Bucket sets: every batch size against the function itself, what is padded and cut, and what is refused.

#include "lorry/replay/buckets.h"

#include <gtest/gtest.h>

#include "lorry/lorry.h"
#include "tests/support/message.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

using replay::BucketOptions;
using replay::BucketSet;
using replay::Capture;
using replay::default_sizes;
using replay::Execution;
using replay::Policy;

TEST(Buckets, have_default_sizes) {
  EXPECT_EQ(default_sizes(true, 1), (std::vector<int64_t>{1}));
  EXPECT_EQ(default_sizes(true, 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(default_sizes(true, 20), (std::vector<int64_t>{1, 2, 4, 8, 16, 20}));
  const std::vector<int64_t> padded = default_sizes(), exact = default_sizes(false);
  EXPECT_EQ(padded.size(), 23u);
  EXPECT_EQ(padded.back(), 160);
  EXPECT_EQ(exact.size(), 36u);
  EXPECT_EQ(exact[31], 32);
  EXPECT_EQ(exact.back(), 160);
  EXPECT_EQ(default_sizes(false, 40).back(), 32);
  EXPECT_THROW(default_sizes(true, 0), ValueError);
}

TEST(Buckets, give_the_rows_of_the_function) {
  manual_seed(2);
  const NoGrad quiet;
  const Tensor w = randn({12});
  const auto f = [&](const Tensor& x) { return softmax(x * w, -1) + x.sum({-1}, true); };
  BucketSet set(f, {.sizes = {8, 1, 4}});
  for (const int64_t n : {3, 1, 8, 5, 2, 4, 7, 3, 6}) {
    const Tensor x = randn({n, 12});
    const Tensor y = set(x);
    EXPECT_TRUE(y.equal(f(x))) << n;
  }
  const auto stats = set.stats();
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_EQ(stats[0].size, 1);
  EXPECT_EQ(stats[0].hits, 1);
  EXPECT_EQ(stats[1].hits, 4);  // 3, 2, 4, 3
  EXPECT_EQ(stats[1].padded_rows, 1 + 2 + 0 + 1);
  EXPECT_EQ(stats[2].padded_rows, 0 + 3 + 1 + 2);
  EXPECT_EQ(stats[2].graph.replays, stats[2].hits);
  if (default_device().is_cpu()) {
    EXPECT_GT(stats[0].graph.bytes, 0);
  }
  EXPECT_EQ(replay::padding_waste(stats), 10.0 / (1 * 1 + 4 * 4 + 4 * 8));
  EXPECT_EQ(replay::padding_waste({}), 0);
}

TEST(Buckets, take_several_arguments_and_give_several_results) {
  const NoGrad quiet;
  const auto f = [](const Tensor& tokens, const std::vector<Tensor>& states, const Tensor& table) {
    return std::pair(table.index_select(0, tokens) + states[0], states[1].cumsum(0));
  };
  BucketSet set(f, {.sizes = {2, 6}, .dims = {0, 0, 1, -1}, .result_dims = {0, 1}, .pad_values = {3}});
  for (const int64_t n : {4, 2, 1, 6}) {
    const Tensor tokens = arange(n).remainder(5), table = randn({5, 7});
    const std::vector<Tensor> states = {randn({n, 7}), randn({3, n})};
    const auto [a, b] = set(tokens, states, table);
    const auto [c, d] = f(tokens, states, table);
    EXPECT_TRUE(a.equal(c)) << n;
    EXPECT_TRUE(b.equal(d)) << n;
  }
}

TEST(Buckets, own_functions_that_can_only_be_moved) {
  const NoGrad quiet;
  BucketSet set([factor = std::make_unique<double>(2)](const Tensor& x) { return x * *factor; }, {.sizes = {4}});
  BucketSet moved = std::move(set);
  EXPECT_TRUE(moved(ones({3})).equal(full({3}, 2.0)));
}

TEST(Buckets, without_padding_run_other_sizes_as_the_function_is) {
  const NoGrad quiet;
  BucketSet set([](const Tensor& x) { return x * 2; }, {.sizes = {2, 4}, .padding = false});
  for (const int64_t n : {2, 3, 4, 1}) {
    const Tensor x = randn({n, 5});
    EXPECT_TRUE(set(x).equal(x * 2));
  }
  EXPECT_EQ(set.stats()[0].hits + set.stats()[1].hits, 2);
}

TEST(Buckets, rows_of_padding_hold_their_value_whatever_came_before) {
  const NoGrad quiet;
  const auto f = [](const Tensor& x) { return x + x.sum({0}, true); };  // rows that influence each other
  BucketSet set(f, {.sizes = {4}, .pad_values = {0.5}});
  for (const int64_t n : {4, 1, 3, 2}) {
    const Tensor x = randn({n, 3});
    EXPECT_TRUE(set(x).equal(f(cat({x, full({4 - n, 3}, 0.5)}, 0)).narrow(0, 0, n))) << n;
  }
}

TEST(Buckets, verifying_finds_rows_that_influence_each_other) {
  const NoGrad quiet;
  BucketSet bad([](const Tensor& x) { return x + x.sum({0}, true); }, {.sizes = {4}, .verify = true});
  EXPECT_NO_THROW(bad(randn({4, 3})));
  EXPECT_THROW(bad(randn({3, 3})), ValueError);
  BucketSet good([](const Tensor& x) { return softmax(x, -1); }, {.sizes = {1, 4}, .verify = true});
  for (const int64_t n : {1, 2, 3, 4, 2}) EXPECT_NO_THROW(good(randn({n, 3}))) << n;
}

TEST(Buckets, refuse_what_does_not_fit) {
  const auto twice = [](const Tensor& x) { return x * 2; };
  EXPECT_THROW(BucketSet(twice, {.sizes = {4, 0}})(ones({1})), ValueError);
  EXPECT_THROW(BucketSet(twice, {.sizes = {4, 4}})(ones({1})), ValueError);
  EXPECT_THROW(BucketSet(twice, {.dims = {-1}})(ones({1})), ValueError);
  BucketSet set(twice, {.sizes = {2, 4}});
  EXPECT_THROW(set(ones({0, 3})), ValueError);
  EXPECT_EQ(
      message<ValueError>([&] {
        set(ones({5, 3}));
      }),
      "BucketSet: the batch is larger than the largest bucket; got 5; expected at most 4; split the batch, or give "
      "a larger size");
  set(ones({3, 3}));
  EXPECT_THROW(set(ones({3, 4})), ShapeError);
  EXPECT_THROW(set(ones({3})), ShapeError);
  EXPECT_THROW(set(ones({3, 3}, {kI64})), DTypeError);
  EXPECT_THROW(set(ones({})), ShapeError);
  EXPECT_TRUE(set(ones({2, 3})).equal(full({2, 3}, 2.0)));  // still usable
  BucketSet sums([](const Tensor& x) { return x.sum(); }, {.sizes = {2, 4}});
  EXPECT_THROW(sums(ones({3})), ShapeError);
  BucketSet reads([](const Tensor& x) { return x * x.sum().item<float>(); }, {.sizes = {2, 4}});
  EXPECT_THROW(reads(ones({3})), CaptureError);
  EXPECT_THROW(reads(ones({3})), CaptureError);
}

TEST(Buckets, refuse_options_that_are_out_of_range) {
  const auto twice = [](const Tensor& x) { return x * 2; };
  const auto refused = [&](const BucketOptions& options) {
    return message<ValueError>([&] { BucketSet(twice, options); });
  };
  EXPECT_EQ(refused({.sizes = {4, 0}}), "BucketSet: sizes must be positive and different; got [4, 0]");
  EXPECT_EQ(refused({.sizes = {4, 2, 4}}), "BucketSet: sizes must be positive and different; got [4, 2, 4]");
  EXPECT_NE(refused({.largest = 0}).find("the largest size is not positive"), std::string::npos);
  EXPECT_EQ(refused({.dims = {0, -2}}),
            "BucketSet: dims has a dimension out of range; got -2; expected 0 to 7, or -1 for none");
  EXPECT_NE(refused({.result_dims = {8}}).find("result_dims has a dimension out of range"), std::string::npos);
  EXPECT_EQ(refused({.sizes = {1, 4}, .executions = {{2, Execution::eager}}}),
            "BucketSet: executions has a size that is no bucket; got 2; expected some of [1, 4]");
  EXPECT_NE(refused({.compiled_up_to = -1}).find("compiled_up_to is negative"), std::string::npos);
  EXPECT_NE(refused({.memory_budget = -5}).find("memory_budget is negative; got -5"), std::string::npos);
  EXPECT_NE(refused({.warm_up = -1}).find("warm_up is negative"), std::string::npos);
  EXPECT_NE(refused({.compiled_up_to = 4, .policy = Policy::latency}).find("the policy chooses"), std::string::npos);
  EXPECT_NE(refused({.policy = Policy::latency, .capture = Capture::in_background}).find("measured in the background"),
            std::string::npos);
  EXPECT_NE(refused({.capture = Capture::in_background, .choose_forward = [](int64_t) {}}).find("choose_forward"),
            std::string::npos);
  BucketSet set(twice, {.sizes = {4}, .dims = {0, 0}});
  EXPECT_EQ(message<ValueError>([&] { set(ones({2})); }),
            "BucketSet: dims has more entries than there are tensor arguments; got 2; expected at most 1");
  BucketSet lists([](const std::vector<Tensor>& x) { return x[0] * 2; }, {.sizes = {4}});
  EXPECT_THROW(lists(std::vector{ones({0})}), ValueError);
  const std::vector pair = {ones({2}), ones({2})};  // a call that failed says nothing about the number of tensors
  EXPECT_TRUE(lists(pair).equal(full({2}, 2.0)));
  EXPECT_THROW(lists(std::vector{ones({2})}), ValueError);
  EXPECT_TRUE(lists(pair).equal(full({2}, 2.0)));
}

}  // namespace
}  // namespace lorry::test
