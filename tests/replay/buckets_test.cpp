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
using replay::default_sizes;

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

TEST(Buckets, tell_the_function_which_size_is_captured) {
  std::vector<int64_t> seen;
  BucketSet set([](const Tensor& x) { return x * 2; },
                {.sizes = {1, 8, 2}, .before_capture = [&](int64_t size) { seen.push_back(size); }});
  set.prepare(ones({3, 2}));
  EXPECT_EQ(seen, (std::vector<int64_t>{8, 2, 1, 0}));  // the largest first
  seen.clear();
  BucketSet bad([](const Tensor& x) { return x * x.sum().item<float>(); },
                {.sizes = {1, 8}, .before_capture = [&](int64_t size) { seen.push_back(size); }});
  EXPECT_THROW(bad.prepare(ones({3, 2})), CaptureError);
  EXPECT_EQ(seen, (std::vector<int64_t>{8, 0}));
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

}  // namespace
}  // namespace lorry::test
