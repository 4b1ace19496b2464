// How buckets run: the four executions, the policy that chooses among them, size arguments, and other forwards.

#include <gtest/gtest.h>

#include <random>

#include "lorry/lorry.h"
#include "tests/support/message.h"
#include "tests/support/scale.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

using replay::BucketOptions;
using replay::BucketSet;
using replay::Capture;
using replay::Execution;
using replay::kExecutions;
using replay::Policy;

TEST(Executions, have_names) {
  std::string names;
  for (const Execution x : kExecutions) names += std::string(replay::name(x)) + " ";
  EXPECT_EQ(names, "eager graph compiled both ");
}

TEST(Executions, give_the_rows_of_the_function) {
  const NoGrad quiet;
  const Tensor w = randn({40});
  const auto f = [&](const Tensor& x) { return ((x * w + 1).tanh() - x).relu() / 3; };
  for (const Execution execution : kExecutions) {
    BucketSet set(f, {.sizes = {4, 8}, .execution = execution});
    for (const int64_t n : {3, 7, 8, 4, 1, 5}) {
      const Tensor x = randn({n, 40});
      EXPECT_TRUE(set(x).equal(f(x))) << n << replay::name(execution);
    }
    for (const auto& stats : set.stats()) {
      EXPECT_EQ(stats.execution, execution);
      EXPECT_EQ(stats.captured, execution == Execution::graph || execution == Execution::both);
      EXPECT_EQ(stats.graph.replays, stats.captured ? 3 : 0);
      if (default_device().is_cpu()) {  // a GPU's driver takes memory in pieces
        EXPECT_EQ(stats.bytes > 0, stats.captured);
      }
      EXPECT_EQ(stats.hits, 3);
    }
  }
}

TEST(Executions, say_how_often_the_function_runs) {
  const NoGrad quiet;
  for (const Execution execution : kExecutions) {
    int runs = 0;
    const auto f = [&](const Tensor& x) { return ++runs, (x * 2 + 1).exp(); };
    BucketSet set(f, {.sizes = {4}, .execution = execution});
    set(ones({4, 40}));
    const int before = runs;
    for (int call = 0; call < 5; ++call) set(ones({4, 40}));
    EXPECT_EQ(runs - before, execution == Execution::eager ? 5 : 0) << replay::name(execution);
  }
}

TEST(Executions, both_replays_fewer_kernels_than_a_graph) {
  const NoGrad quiet;
  const auto f = [](const Tensor& x) { return ((x * 2 + 1).tanh() - x).relu() / 3; };
  BucketSet set(f, {.sizes = {1, 2, 4}, .compiled_up_to = 2});
  set.prepare(ones({2, 40}));
  const auto stats = set.stats();
  EXPECT_EQ(stats[0].execution, Execution::both);
  EXPECT_EQ(stats[1].execution, Execution::both);
  EXPECT_EQ(stats[2].execution, Execution::graph);
  EXPECT_LT(stats[1].graph.nodes, stats[2].graph.nodes);
  EXPECT_LE(stats[1].graph.bytes, stats[2].graph.bytes);
}

TEST(Executions, of_single_sizes_come_before_the_others) {
  const NoGrad quiet;
  BucketSet set([](const Tensor& x) { return x * 2 + 1; },
                {.sizes = {1, 2, 4, 8},
                 .execution = Execution::eager,
                 .compiled_up_to = 4,
                 .executions = {{2, Execution::graph}, {8, Execution::both}}});
  set.prepare(ones({2, 4}));
  std::vector<Execution> got;
  for (const auto& stats : set.stats()) got.push_back(stats.execution);
  EXPECT_EQ(got, (std::vector{Execution::compiled, Execution::graph, Execution::compiled, Execution::both}));
}

// ---- the policy -----------------------------------------------------------------------------------------------------

TEST(Policy, keeps_the_execution_that_took_the_least_time) {
  const NoGrad quiet;
  const auto f = [](const Tensor& x) { return x.cumsum(-1); };  // nothing to fuse: a graph and both are alike
  for (const Policy policy : {Policy::latency, Policy::throughput}) {
    BucketSet set(f, {.sizes = {1, 2, 3, 4, 5, 6, 7, 8}, .policy = policy});
    const Tensor x = randn({5, 64});
    set.prepare(x);
    for (const auto& stats : set.stats()) {
      const auto& us = stats.measured_us;
      EXPECT_GT(*std::ranges::min_element(us), 0);
      EXPECT_EQ(us[static_cast<size_t>(stats.execution)], *std::ranges::min_element(us));
      EXPECT_EQ(stats.captured, stats.execution == Execution::graph || stats.execution == Execution::both);
    }
    EXPECT_TRUE(set(x).equal(f(x)));
  }
}

TEST(Policy, leaves_out_what_cannot_be_captured) {
  const NoGrad quiet;
  const auto f = [](const Tensor& x) { return x * x.sum().item<float>(); };
  BucketSet set(f, {.sizes = {2}, .policy = Policy::latency});
  EXPECT_TRUE(set(ones({2, 3})).equal(full({2, 3}, 6.0)));
  const auto stats = set.stats()[0];
  EXPECT_GT(stats.measured_us[0], 0);
  EXPECT_EQ(stats.measured_us[1], 0);
  EXPECT_GT(stats.measured_us[2], 0);
  EXPECT_EQ(stats.measured_us[3], 0);
  EXPECT_FALSE(stats.captured);
}

// ---- size arguments -------------------------------------------------------------------------------------------------

TEST(SizeArguments, are_the_size_of_the_bucket) {
  const NoGrad quiet;
  for (const Execution execution : kExecutions) {
    const Tensor state = zeros({8, 3}), x = zeros({8, 3});
    BucketSet set([&](int64_t rows) { state.narrow(0, 0, rows).copy_(x.narrow(0, 0, rows) * 2 + 1); },
                  {.sizes = {2, 4, 8}, .execution = execution});
    set.prepare(1);
    for (const int64_t n : {3, 1, 8, 2, 4}) {
      state.zero_();
      x.copy_(randn({8, 3}));
      set(n);
      const int64_t size = n <= 2 ? 2 : n <= 4 ? 4 : 8;
      const Tensor expected = x * 2 + 1;
      EXPECT_TRUE(state.narrow(0, 0, size).equal(expected.narrow(0, 0, size))) << n;
      if (size < 8) {
        EXPECT_EQ(state.narrow(0, size, 8 - size).abs().max().item<float>(), 0);
      }
    }
    EXPECT_EQ(set.stats()[1].padded_rows, 1);
  }
}

TEST(SizeArguments, go_with_tensors_and_give_results) {
  const NoGrad quiet;
  const Tensor state = randn({8, 3});
  const auto f = [&](const Tensor& x, int64_t rows, const std::vector<Tensor>& more) {
    return std::pair(x + state.narrow(0, 0, rows), more[0] * more[1]);
  };
  BucketSet set(f, {.sizes = {2, 8}});
  for (const int n : {3, 1, 8}) {
    const Tensor x = randn({n, 3});
    const std::vector more = {randn({n}), randn({n})};
    const auto [a, b] = set(x, n, more);
    const auto [c, d] = f(x, n, more);
    EXPECT_TRUE(a.equal(c) && b.equal(d)) << n;
  }
  const std::vector more = {randn({2}), randn({2})};
  EXPECT_EQ(message<ShapeError>([&] {
              set(ones({2, 3}), 3, more);
            }),
            "BucketSet: arguments have different batches; got 3 and, in argument 0, 2");
  EXPECT_NO_THROW(set(ones({2, 3}), 2, more));
}

TEST(SizeArguments, are_the_batch_without_padding) {
  std::vector<int64_t> seen;
  BucketSet set([&](int64_t rows) { seen.push_back(rows); },
                {.sizes = {2, 4}, .padding = false, .execution = Execution::eager});
  set.prepare(2);
  for (const int64_t n : {3, 4, 1}) set(n);
  EXPECT_EQ(seen, (std::vector<int64_t>{3, 4, 1}));
}

TEST(SizeArguments, may_be_the_only_ones_and_give_nothing) {
  const NoGrad quiet;
  const Tensor x = zeros({4});
  BucketSet set([&](int64_t rows) { return x.narrow(0, 0, rows).add_(1), std::vector<Tensor>(); }, {.sizes = {4}});
  set.prepare(4);
  x.zero_();
  EXPECT_TRUE(set(3).empty());
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(4, 1));
}

TEST(SizeArguments, are_refused_where_the_function_would_write_memory_of_others) {
  const auto f = [](int64_t) {};
  EXPECT_NE(
      message<ValueError>([&] { BucketSet(f, {.verify = true}); }).find("verify is not for functions with a size"),
      std::string::npos);
  EXPECT_NE(message<ValueError>([&] { BucketSet(f, {.capture = Capture::in_background}); }).find("in the background"),
            std::string::npos);
  BucketSet unknown([](auto) {}, {.verify = true});  // known when it is called
  EXPECT_THROW(unknown(3), ValueError);
  BucketSet set(f, {.sizes = {2, 4}});
  EXPECT_THROW(set(0), ValueError);
  EXPECT_THROW(set(-1), ValueError);
  EXPECT_THROW(set(5), ValueError);
  EXPECT_NO_THROW(set(3));
  BucketSet two([](int64_t, int64_t) {}, {.sizes = {2, 4}});
  EXPECT_THROW(two(2, 3), ShapeError);
  EXPECT_NO_THROW(two(2, 2));
}

// ---- other forwards by size -----------------------------------------------------------------------------------------

/// Runs in another form at one row.
struct Projection : nn::Layer<Projection> {
  Tensor weight = parameter("weight", randn({16, 16}));
  bool one_row = false;
  mutable int one_row_calls = 0, calls = 0;

  Tensor forward(const Tensor& x) const {
    ++(one_row ? one_row_calls : calls);
    return one_row ? mv(weight, x.select(0, 0)).unsqueeze(0) : matmul(x, weight.t());
  }
};

TEST(ChooseForward, is_told_of_every_way_in_which_the_function_runs) {
  const NoGrad quiet;
  struct Case {
    Execution execution;
    Policy policy;
    Capture capture;
  };
  for (const auto& [execution, policy, capture] : {Case{Execution::eager, Policy::fixed, Capture::at_start},
                                                   Case{Execution::graph, Policy::fixed, Capture::at_start},
                                                   Case{Execution::compiled, Policy::fixed, Capture::at_first_use},
                                                   Case{Execution::both, Policy::fixed, Capture::at_start},
                                                   Case{Execution::graph, Policy::latency, Capture::at_first_use}}) {
    Projection layer;
    std::vector<int64_t> seen;
    BucketSet set(
        [&](const Tensor& x) {
          EXPECT_EQ(layer.one_row, x.size(0) == 1);
          return layer(x);
        },
        {.sizes = {1, 2, 8},
         .padding = false,
         .execution = execution,
         .policy = policy,
         .capture = capture,
         .choose_forward = [&](int64_t size) { seen.push_back(size), layer.one_row = size == 1; }});
    set.prepare(randn({2, 16}));
    for (const int64_t n : {1, 2, 3, 8, 1}) {
      const Tensor y = set(randn({n, 16}));
      EXPECT_FALSE(layer.one_row);
    }
    EXPECT_GT(layer.one_row_calls, 0);
    EXPECT_GT(layer.calls, 0);
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i] == 0, i % 2 == 1);
    EXPECT_EQ(seen.size() % 2, 0u);
    EXPECT_TRUE(std::ranges::count(seen, 3) == 1);  // without a bucket
  }
}

TEST(ChooseForward, is_told_of_sizes_from_the_largest_and_of_the_end_after_errors) {
  std::vector<int64_t> seen;
  const auto note = [&](int64_t size) { seen.push_back(size); };
  BucketSet set([](const Tensor& x) { return x * 2; }, {.sizes = {1, 8, 2}, .choose_forward = note});
  set.prepare(ones({3, 2}));
  EXPECT_EQ(seen, (std::vector<int64_t>{8, 0, 2, 0, 1, 0}));
  seen.clear();
  set(ones({2, 2}));
  EXPECT_TRUE(seen.empty());  // a replay does not run the function
  BucketSet bad([](const Tensor& x) { return x * x.sum().item<float>(); }, {.sizes = {1, 8}, .choose_forward = note});
  EXPECT_THROW(bad.prepare(ones({3, 2})), CaptureError);
  EXPECT_EQ(seen, (std::vector<int64_t>{8, 0}));
}

// ---- random combinations --------------------------------------------------------------------------------------------

/// Options of random sizes, executions and captures, for the function of the test below.
BucketOptions random_options(std::mt19937_64& random, bool with_size) {
  const auto draw = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  BucketOptions options{
      .padding = draw(3) != 0,
      .dims = {0, 0, -1},
      .result_dims = {0, 1},
      .pad_values = {static_cast<double>(draw(3)), 0.5},
      .execution = kExecutions[static_cast<size_t>(draw(4))],
      .capture = static_cast<Capture>(draw(with_size ? 2 : 3)),
      .memory_budget = draw(2) * ((default_device().is_cpu() ? 2 << 20 : 64 << 20) + 10000 + draw(60000)),
      .warm_up = static_cast<int>(draw(3)),
      .verify = !with_size && draw(2) == 0};
  for (int64_t size = 1; size <= 12; ++size)
    if (draw(3) == 0) options.sizes.push_back(size);
  if (options.sizes.empty()) options.sizes.push_back(5);
  if (draw(8) == 0 && options.capture != Capture::in_background) {
    options.policy = draw(2) == 0 ? Policy::latency : Policy::throughput;
    return options;
  }
  options.compiled_up_to = draw(6);
  for (const int64_t size : options.sizes)
    if (draw(3) == 0) options.executions[size] = kExecutions[static_cast<size_t>(draw(4))];
  return options;
}

TEST(Executions, give_the_bits_of_the_function_in_random_combinations) {
  const NoGrad quiet;
  const BatchInvariant invariant;  // products of padded rows
  for (const uint64_t seed : seeds(100)) {
    SCOPED_TRACE(fmt::format("combination {}", seed));
    std::mt19937_64 random(seed);
    manual_seed(seed);
    const nn::Linear up(9, 33), down(33, 6);
    const Tensor state = randn({12, 33});
    const auto with_size = [&](const Tensor& x, const Tensor& scale, const Tensor& table, int64_t rows) {
      const Tensor h = gelu(up(x)) * scale.unsqueeze(-1) + state.narrow(0, 0, rows);
      return std::pair(softmax(down(h), -1), (h.sum({-1}) + table.sum()).unsqueeze(0));
    };
    const auto without = [&](const Tensor& x, const Tensor& scale, const Tensor& table) {
      return with_size(x, scale, table, x.size(0));
    };
    const bool takes_size = random() % 3 == 0;
    const BucketOptions options = random_options(random, takes_size);
    BucketSet sized(with_size, takes_size ? options : BucketOptions());
    BucketSet set(without, options);
    const int64_t largest = *std::ranges::max_element(options.sizes);
    for (int call = 0; call < 25; ++call) {
      const int64_t n = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest));
      const Tensor x = randn({n, 9}), scale = randn({n}), table = randn({4});
      const auto [a, b] = takes_size ? sized(x, scale, table, n) : set(x, scale, table);
      const auto [c, d] = without(x, scale, table);
      EXPECT_TRUE(a.equal(c) && b.equal(d)) << n;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lorry::test
