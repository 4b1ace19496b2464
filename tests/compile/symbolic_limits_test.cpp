// Where recordings for other sizes must not follow: sizes that meet by chance, memory that becomes one run, views that
// the function only looks at, and random functions over sizes that often meet.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "lorry/lorry.h"
#include "tests/compile/many_sizes.h"
#include "tests/support/scale.h"

namespace lorry::test {
namespace {

// Two sizes whose product is the same, so that it looks constant, or that follow from another by chance.
TEST(SymbolicSizes, sizes_that_are_the_same_by_chance) {
  const auto flat = [](const Tensors& x) { return Tensors{(x[0].flatten() * 2 + 1).exp()}; };
  expect_same_for(flat, {{{4, 6}}, {{6, 4}}, {{5, 8}}, {{3, 7}}, {{9, 5}}, {{2, 3}}, {{8, 8}}, {{10, 3}}});
  expect_same_for(flat, {{{8, 6}}, {{16, 3}}, {{24, 2}}, {{12, 4}}, {{10, 6}}, {{11, 7}}});
  EXPECT_GT(expect_same_for(flat, {{{4, 6}}, {{4, 8}}, {{5, 8}}, {{3, 7}}, {{9, 5}}}).resized, 0);
  const auto writes = [](const Tensors& x) {
    x[0].view({-1}).mul_(2).add_(1);
    return Tensors{(x[0] + 1).exp()};
  };
  expect_same_for(writes, {{{4, 6}}, {{6, 4}}, {{5, 8}}, {{3, 7}}});
  const auto fixed = [](const Tensors& x) { return Tensors{(x[0].reshape({24}) * 2 + 1).exp()}; };
  expect_same_for(fixed, {{{4, 6}}, {{6, 4}}, {{3, 8}}, {{5, 8}}, {{2, 12}}, {{6, 8}}});
  const auto two = [](const Tensors& x) { return Tensors{x[0] * 2 + 1, (x[1].flatten() * 2).exp()}; };
  expect_same_for(two, {{{6}, {2, 3}}, {{20}, {4, 5}}, {{3}, {2, 4}}, {{7}, {3, 9}}, {{7}, {3, 5}}, {{9}, {4, 6}}});
  const auto gradient_of = [](const auto& g) {
    return [g](const Tensors& x) {
      const Tensor y = x[0].clone().requires_grad_();
      g(y * 2).backward();
      return Tensors{y.grad()};
    };
  };
  const auto mean = gradient_of([](const Tensor& y) { return y.exp().mean(); });
  const auto var = gradient_of([](const Tensor& y) { return y.exp().var(); });
  const std::vector<std::vector<Dims>> areas{{{4, 6}}, {{6, 4}}, {{5, 8}}, {{3, 7}}, {{8, 3}}, {{2, 12}}, {{9, 4}}};
  expect_same_for(mean, areas);
  expect_same_for(var, areas);
  const std::vector<std::vector<Dims>> longer{{{4, 6}}, {{5, 6}}, {{7, 6}}, {{8, 6}}, {{9, 6}}};
  EXPECT_EQ(expect_same_for(mean, longer).resized, 2);
  expect_same_for(var, longer);
  const auto attends = [](const Tensors& x) {
    return Tensors{(scaled_dot_product_attention(x[0], x[0], x[0]) * 2 + 1).exp()};
  };
  expect_same_for(attends, {{{1, 3, 4, 9}}, {{1, 3, 6, 4}}, {{1, 3, 10, 36}}, {{1, 3, 5, 16}}, {{1, 3, 7, 25}}});
  double factor = 8;
  const auto scales = [&](const Tensors& x) { return Tensors{(x[0] * factor + 1).exp()}; };
  const auto compiled = compile(scales, {.wait = true});
  compiled(Tensors{randn({8})});
  factor = 16;
  for (const int64_t n : {16, 40}) {
    const Tensor x = randn({n});
    EXPECT_TRUE(compiled(Tensors{x})[0].equal(scales({x})[0])) << n;
  }
}

// A slice of rows is contiguous when it is as long as the rows.
TEST(SymbolicSizes, memory_that_becomes_one_run) {
  const auto make = [](int64_t n) {
    manual_seed(static_cast<uint64_t>(n));
    return Tensors{randn({6, 12}).slice(1, 0, n)};
  };
  constexpr int64_t kSlices[] = {8, 9, 10, 11, 12, 7, 12};
  const auto copies = [](const Tensors& x) {
    const Tensor y = x[0].contiguous();
    y.mul_(2);
    return Tensors{(x[0] + y).exp() * 2};
  };
  expect_same_over(copies, make, {.wait = true}, kSlices);
  const auto flattens = [](const Tensors& x) {
    const Tensor y = x[0].flatten();
    y.mul_(2);
    return Tensors{(y + 1).exp() * 2, x[0] * 3 + 1};
  };
  expect_same_over(flattens, make, {.wait = true}, kSlices);
  const auto asks = [](const Tensors& x) {
    return Tensors{x[0].is_contiguous() ? (x[0] + 1).exp() : (x[0] * 2 - 1).sin()};
  };
  expect_same_over(asks, make, {.wait = true}, kSlices);
}

TEST(SymbolicSizes, views_that_the_function_only_looks_at) {
  const auto rank = [](const Tensors& x) {
    const Tensor y = x[0].view({-1, 4});
    return Tensors{y.squeeze().dim() == 1 ? (y * 2 + 1).exp() : (y * 3 - 1).sin()};
  };
  expect_same_for(rank, {{{8}}, {{16}}, {{4}}, {{24}}, {{4}}});
  const auto run = [](const Tensors& x) {
    const Tensor y = x[0].view({-1, 4}).t();
    return Tensors{y.is_contiguous() ? (y * 2 + 1).exp() : (y * 3 - 1).sin()};
  };
  expect_same_for(run, {{{8}}, {{16}}, {{4}}, {{24}}});
  const auto catches = [](const Tensors& x) {
    try {
      return Tensors{(x[0].view({-1, 4}) * 3 - 1).sin()};
    } catch (const Error&) {
      return Tensors{(x[0] * 2 + 1).exp()};
    }
  };
  expect_same_for(catches, {{{9}}, {{11}}, {{8}}, {{12}}, {{13}}, {{16}}});
  const auto even = [](const Tensors& x) {
    try {
      x[0].unflatten(0, {-1, 2});
    } catch (const Error&) {
      return Tensors{(x[0] * 2 + 1).exp()};
    }
    return Tensors{(x[0] * 3 - 1).sin()};
  };
  expect_same_for(even, {{{8}}, {{16}}, {{9}}, {{5}}, {{24}}});
  const auto both = [](const Tensors& x) { return Tensors{(x[0].view({-1, 4}).view({-1, 6}) * 2 + 1).exp()}; };
  expect_same_for(both, {{{12}}, {{24}}, {{18}}, {{36}}, {{8}}});
}

TEST(SymbolicSizes, captured_memory_that_meets) {
  const auto run = [](const auto& call) {
    manual_seed(9);
    std::vector<std::string> bits;
    for (const int64_t n : {4, 6, 8, 20, 24}) bits.push_back(bits_of(call(randn({n}))));
    return bits;
  };
  Tensor table;
  const auto f = [&](const Tensor& x) {
    table.narrow(0, 0, x.size(0)).mul_(.5).add_(x);
    table.narrow(0, 16, 8).add_(1).mul_(.3);
    return (table.narrow(0, 0, x.size(0)) * 2).exp();
  };
  table = ones({24});
  const std::vector<std::string> expected = run(f);
  table.fill_(1);
  EXPECT_EQ(run(compile(f, {.wait = true, .dynamic = Dynamic::always})), expected);
}

TEST(SymbolicSizes, a_callback_for_some_sizes_ties_a_recording) {
  int64_t seen = 0, steps = 0;
  const auto f = [&](const Tensor& x) {
    trace::host_callback("count", [&seen, x] { seen += x.numel(); });
    return (x * 2 + 1).exp();
  };
  const auto g = [&](const Tensor& x) {
    trace::host_callback(
        "step", [&steps] { ++steps; }, true);
    return (x * 2 + 1).exp();
  };
  const auto compiled = compile(f, {.wait = true});
  const auto stepped = compile(g, {.wait = true});
  for (const int64_t n : {8, 16, 24, 40, 24}) compiled(randn({n})), stepped(randn({n}));
  EXPECT_EQ(seen, 112);
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(stepped.stats().resized, 2);
}

TEST(SymbolicSizes, threads_meet_new_sizes_and_replace_what_they_captured) {
  std::vector<Tensor> tables;
  for (int t = 0; t < 4; ++t) tables.push_back(randn({12}));
  const auto compiled =
      compile([&](const Tensor& x, int t) { return (x * tables[static_cast<size_t>(t)] + 1).exp(); }, {.wait = true});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 200; ++k) {
        if (k % 23 == 0) tables[static_cast<size_t>(t)] = randn({12});
        const Tensor x = full({2 + k % 9, 12}, 0.5 + t);
        if (!compiled(x, t).equal((x * tables[static_cast<size_t>(t)] + 1).exp())) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

/// A random function of tensors [r, c], [c], [r, 1] and [c, r] that reads no sizes: it knows which are which.
class ShapeBlind {
 public:
  ShapeBlind(uint64_t seed, const Tensors& arguments)
      : random_(seed),
        argument_(arguments[0]),
        wide_{arguments[0], arguments[3].t()},
        rows_{arguments[1]},
        columns_{arguments[2]} {}

  Tensors run(int steps) {
    for (int i = 0; i < steps; ++i) below(3) == 0 ? fold(any(wide_)) : wide_.push_back(step(any(wide_)));
    return {wide_.back(), rows_.back(), columns_.back(), any(wide_), stack({any(wide_), any(wide_)}).sum()};
  }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  Tensor any(const Tensors& list) { return list[static_cast<size_t>(below(std::ssize(list)))]; }
  Tensor partner() { return any(below(3) == 0 ? wide_ : below(2) == 0 ? rows_ : columns_); }

  Tensor step(const Tensor& x) {
    switch (below(12)) {
      case 0:
        return x * partner() + 1;
      case 1:
        return x.sub(partner()).tanh();
      case 2:
        return where(x > 0, x, partner());
      case 3:
        return softmax(x, below(2));
      case 4:
        return x.t().contiguous().t();
      case 5:
        return (x.flatten() * 2).view_as(x);
      case 6:
        return x.matmul(any(wide_).t()).matmul(any(wide_)) / 100;
      case 7:
        return x.clone().mul_(2).add_(partner());
      case 8:
        return cat({x, any(rows_).unsqueeze(0), any(wide_)}).cumsum(0).amin({0}, true) + x;
      case 9:
        return any(rows_).expand_as(x).clone() + any(columns_).expand_as(x);
      case 10:
        return dropout(x, 0.3) * (1 / (1 + x.var().abs()));
      default:
        return x.to(kF64).exp().clamp(0, 5).to(kF32) + ones_like(x);
    }
  }

  void fold(const Tensor& x) {
    switch (below(4)) {
      case 0:
        return rows_.push_back(x.mean({0}));
      case 1:
        return columns_.push_back(x.sum({1}, true));
      case 2:
        return columns_.push_back(x.amax({-1}, true) - 1);
      default:
        argument_.add_(any(rows_));
    }
  }

  std::mt19937_64 random_;
  Tensor argument_;
  Tensors wide_, rows_, columns_;
};

TEST(SymbolicSizes, random_functions_over_random_sizes) {
  int64_t resized = 0, calls = 0;
  for (const uint64_t seed : seeds(100)) {
    std::mt19937_64 random(seed + 1000);
    // Sizes whose products and quotients often meet.
    constexpr int64_t kSizes[] = {2, 3, 4, 6, 8, 9, 12, 16, 36};
    const auto size = [&] { return kSizes[std::uniform_int_distribution<size_t>(0, std::size(kSizes) - 1)(random)]; };
    const auto f = [=](const Tensors& x) {
      const NoGrad quiet;
      return ShapeBlind(seed, x).run(4 + static_cast<int>(seed % 20));
    };
    const auto compiled = compile(f, {.wait = true, .epilogues = false});
    for (int call = 0; call < 8; ++call, ++calls) {
      const int64_t r = seed % 2 == 0 ? size() : 5 + call, c = seed % 3 == 0 ? 7 : size();
      const auto make = randoms({{r, c}, {c}, {r, 1}, {c, r}});
      SCOPED_TRACE(fmt::format("function {}, {} x {}\n{}", seed, r, c, compiled.explain()));
      const Outcome expected = run_plain(make, f, seed);
      Outcome got{.results = {}, .arguments = make(seed)};
      run_seeded(seed, got, [&](const Tensors& arguments) { return compiled(arguments); });
      expect_same(got, expected, "compiled");
      if (HasFailure()) return;
    }
    resized += compiled.stats().resized;
  }
  EXPECT_GT(resized, calls / 16);
}

}  // namespace
}  // namespace lorry::test
