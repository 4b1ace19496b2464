// Gradients through compiled functions against those through the functions as they are, to the bit.

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>

#include "lorry/compile/compile.h"
#include "lorry/compile/min_cut.h"
#include "tests/compile/fused_devices.h"
#include "tests/support/message.h"
#include "tests/support/scale.h"
#include "tests/trace/random_programs.h"

namespace lorry::test {
namespace {

/// Of a call: results and gradients of arguments and of others, where each result gets a random gradient.
std::vector<std::string> with_gradients(const Function& f, const Tensors& arguments, const Tensors& others,
                                        uint64_t seed) {
  Tensors wanted = arguments;
  wanted.insert(wanted.end(), others.begin(), others.end());
  for (const Tensor& x : wanted) x.set_grad({});
  manual_seed(seed);
  const Tensors results = f(arguments);
  Tensors roots, gradients;
  for (const Tensor& y : results)
    if (y.requires_grad()) {
      roots.push_back(y);
      gradients.push_back(randn(y.sizes()).to(y.dtype()));
    }
  if (!roots.empty()) autograd::backward(roots, gradients);
  std::vector<std::string> bits;
  for (const Tensor& y : results) bits.push_back(fmt::format("{} ", y.requires_grad()) + bits_of(y));
  for (const Tensor& x : wanted)  // in any layout
    bits.push_back(bits_of(x.grad().defined() ? x.grad().reshape({x.numel()}) : Tensor()));
  return bits;
}

/// Expects the same results and gradients of f compiled. Returns how many calls were fused.
template <class F>
int64_t expect_same_gradients(const F& f, const std::function<Tensors(uint64_t)>& make, const Tensors& others = {}) {
  const auto compiled = compile(f, {.wait = true, .epilogues = false});  // epilogues give other bits
  for (const uint64_t seed : {1, 2, 3, 3}) {
    const auto expected = with_gradients(f, make(seed), others, seed);
    const auto got = with_gradients(compiled, make(seed), others, seed);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(got[i] == expected[i]) << "result or gradient " << i << " of " << expected.size() << ": got "
                                         << got[i].substr(0, 40) << ", expected " << expected[i].substr(0, 40) << "\n"
                                         << compiled.explain();
  }
  const std::string text = compiled.explain();
  EXPECT_TRUE(compiled.stats().hits > 0 || !has_fused_kernels() || text.find("nothing to fuse") != text.npos) << text;
  return compiled.stats().hits;
}

std::function<Tensors(uint64_t)> leaves(const std::vector<Dims>& sizes) {
  return [=](uint64_t seed) {
    Tensors all = randoms(sizes)(seed);
    for (const Tensor& x : all) x.requires_grad_();
    return all;
  };
}

TEST(CompiledGradients, of_pointwise_functions) {
  LORRY_NEEDS_FUSED_KERNELS();
  for (const int64_t n : {1, 7, 64, 1000, 40000}) {
    const int64_t hits = expect_same_gradients(
        [](const Tensors& x) {
          return Tensors{gelu(x[0] * x[1]) + x[1].sigmoid() / 2, (x[0] - x[1]).tanh()};
        },
        leaves({{n}, {n}}));
    EXPECT_EQ(hits, 3);
  }
}

TEST(CompiledGradients, of_rows_products_and_captured_parameters) {
  LORRY_NEEDS_FUSED_KERNELS();
  manual_seed(5);
  const nn::Linear up(24, 64), down(64, 24);
  const nn::LayerNorm norm({24});
  Tensors parameters;
  for (const nn::Module* m : {static_cast<const nn::Module*>(&up), static_cast<const nn::Module*>(&down),
                              static_cast<const nn::Module*>(&norm)})
    for (const Tensor& p : m->parameters()) parameters.push_back(p);
  const int64_t hits = expect_same_gradients(
      [&](const Tensors& x) {
        const Tensor h = x[0] + down(gelu(up(norm(x[0]))));
        return Tensors{softmax(h * 0.5, -1), cross_entropy(h, x[0].detach().argmax(-1))};
      },
      leaves({{12, 24}}), parameters);
  EXPECT_EQ(hits, 3);
}

TEST(CompiledGradients, of_views_writes_dropout_and_other_dtypes) {
  LORRY_NEEDS_FUSED_KERNELS();
  EXPECT_EQ(expect_same_gradients(
                [](const Tensors& x) {
                  const Tensor a = x[0].t() * 2, b = dropout(a.exp(), 0.3) + rand({20, 30});
                  b.narrow(0, 3, 5).mul_(x[1].narrow(1, 0, 5).t()).add_(1);
                  b.narrow(0, 0, 4).add_(x[1][0][0]);
                  return Tensors{b.sum(0) * x[1].mean(), b.to(kBF16).square(), (x[0] > 0).to(kF32)};
                },
                leaves({{30, 20}, {30, 20}})),
            3);
}

TEST(CompiledGradients, go_to_each_argument_that_one_tensor_is) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto once = leaves({{50}});
  const auto twice = [&](uint64_t seed) {
    Tensors x = once(seed);
    x.push_back(x[0]);
    x.push_back(x[0] * 2);  // no leaf
    return x;
  };
  EXPECT_EQ(
      expect_same_gradients([](const Tensors& x) { return Tensors{(x[0].exp() * x[1] + x[2]).tanh() * x[2]}; }, twice),
      3);
  // Two leaves in one piece of memory, where one leaf was recorded twice.
  const auto f = [](const Tensor& a, const Tensor& b) { return (a.exp() * b + b).tanh(); };
  const auto compiled = compile(f);
  const Tensor x = randn({50}).requires_grad_(), y = x.detach().requires_grad_();
  compiled(x, x), compiled(x, x);
  compiled(x, y).sum().backward();
  const Tensor got_x = x.grad().clone(), got_y = y.grad().clone();
  x.set_grad({}), y.set_grad({});
  f(x, y).sum().backward();
  EXPECT_EQ(bits_of(got_x), bits_of(x.grad()));
  EXPECT_EQ(bits_of(got_y), bits_of(y.grad()));
}

TEST(CompiledGradients, pass_through_on_both_sides_and_twice) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = [](const Tensor& x) { return (x * 3).sin() * x; };
  const auto compiled = compile(f);
  const Tensor w = randn({64}).requires_grad_();
  const auto gradient = [&](const auto& g) {
    w.set_grad({});
    const Tensor y = g(g(w * w).exp()).sum();
    y.backward({}, true);
    y.backward();
    return bits_of(w.grad());
  };
  const std::string expected = gradient(f);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(gradient(compiled), expected);
  EXPECT_GT(compiled.stats().hits, 3);
}

TEST(CompiledGradients, of_what_repeats_an_argument_or_another_result) {
  for (const auto& f : std::vector<Function>{
           [](const Tensors& x) { return Tensors{x[0] * 1}; },
           [](const Tensors& x) {
             return Tensors{x[0] / 1, (x[0] - 0).exp(), x[0].neg().neg()};
           },
           [](const Tensors& x) {
             const Tensor y = x[0].exp();
             return Tensors{y * 1, y, y + -0.0, y * 2 + zeros_like(y)};
           },
       })
    expect_same_gradients(f, leaves({{6, 5}}));
}

TEST(CompiledGradients, of_results_that_nothing_depends_on_are_zero) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = compile(
      [](const Tensor& x, const Tensor& y) { return std::pair<Tensor, Tensor>((x * 2).exp(), (y * 2).cos() + x); });
  for (int k = 0; k < 3; ++k) {
    const Tensor x = randn({40}).requires_grad_(), y = randn({40}).requires_grad_();
    f(x, y).first.sum().backward();
    EXPECT_EQ(bits_of(x.grad()), bits_of(((x * 2).exp() * 2).detach()));
    EXPECT_TRUE(!y.grad().defined() || y.grad().equal(zeros({40})));
  }
}

// The layout of a gradient is that of what made it, and not always that of the recording.
TEST(CompiledGradients, take_gradients_in_any_layout) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = [](const Tensor& x) { return (x * 2).exp(); };
  const auto compiled = compile(f);
  const Tensor x = randn({6, 5}).requires_grad_();
  for (const Tensor& g : {randn({6, 5}), randn({5, 6}).t(), ones({1}).expand({6, 5}), randn({6, 10}).slice(1, 0, 10, 2),
                          randn({5}).expand({6, 5})}) {
    x.set_grad({});
    compiled(x).backward(g);
    const Tensor got = x.grad();
    x.set_grad({});
    f(x).backward(g);
    EXPECT_TRUE(got.equal(x.grad())) << g;
  }
}

TEST(CompiledGradients, refuse_what_would_be_wrong) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = compile([](const Tensor& x) { return (x * 2).exp() + 1; });
  const Tensor x = randn({40}).requires_grad_();
  f(x);
  const Tensor y = f(x);
  EXPECT_NE(message<GradError>([&] { autograd::grad({y}, {x}, {ones({40})}, {.create_graph = true}); }).find("compile"),
            std::string::npos);
  const auto square = compile([](const Tensor& a) { return a * a + 1; });
  const Tensor a = randn({40}).requires_grad_(), b = a * 1;
  square(b);
  const Tensor z = square(b);
  b.detach().add_(1);
  EXPECT_NE(message<GradError>([&] { z.sum().backward(); }).find("overw"), std::string::npos);
  const Tensor freed = f(x);
  freed.sum().backward();
  EXPECT_NE(message<GradError>([&] { freed.sum().backward(); }).find("freed"), std::string::npos);
}

// What cannot be parted runs as it is, and rightly.
TEST(CompiledGradients, functions_that_do_more_than_return_run_as_they_are) {
  const Tensor w = randn({30}).requires_grad_(), history = w * 2;
  const std::vector<std::pair<Function, const char*>> cases = {
      {[](const Tensors& x) {
         return Tensors{(x[0] * 2).exp(), x[0].narrow(0, 0, 3)};
       },
       "shares memory with an argument"},
      {[](const Tensors& x) {
         const Tensor y = (x[0] * 2).exp();
         return Tensors{y, y.narrow(0, 0, 3)};
       },
       "two results share memory"},
      {[&](const Tensors& x) { return Tensors{(x[0] * history.detach()).exp() * history}; }, "has a history"},
      {[&](const Tensors& x) {
         (w * 2).sum().backward();
         return Tensors{(x[0] * 2).exp()};
       },
       "sets gradients"}};
  for (const auto& [f, why] : cases) {
    const auto compiled = compile(f);
    for (int k = 0; k < 4; ++k) {
      const Tensors x = leaves({{30}})(static_cast<uint64_t>(k));
      const Tensors got = compiled(x), expected = f(x);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(bits_of(got[i]), bits_of(expected[i]));
    }
    EXPECT_NE(compiled.explain().find(why), std::string::npos) << compiled.explain();
  }
}

TEST(CompiledGradients, outlive_what_was_compiled) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Tensor x = randn({40}).requires_grad_();
  Tensor y;
  {
    const auto f = compile([](const Tensor& a) { return (a * 2).exp() + 1; });
    f(x), f(x);
    y = f(x);
    EXPECT_EQ(f.stats().hits, 2);
  }
  y.sum().backward();
  EXPECT_EQ(bits_of(x.grad()), bits_of(((x * 2).exp() * 2).detach()));
}

TEST(CompiledGradients, follow_what_is_frozen_and_no_longer) {
  LORRY_NEEDS_FUSED_KERNELS();
  for (const bool first : {false, true}) {
    const Tensor w = randn({40}).requires_grad_();
    const auto f = compile([&](const Tensor& x) { return (x * w).exp() + 1; });
    const Tensor x = randn({40}).requires_grad_();
    for (int k = 0; k < 8; ++k) {
      const bool on = first == (k / 2 % 2 == 0);
      w.requires_grad_(on);
      w.set_grad({}), x.set_grad({});
      f(x).sum().backward();
      EXPECT_EQ(w.grad().defined(), on) << k;
      EXPECT_TRUE(x.grad().equal((x * w).exp().detach() * w.detach()));
    }
    EXPECT_GE(f.stats().hits, 4);
  }
}

// x * 2 + 1 is made again in the backward; the exponential is not, on a CPU.
TEST(CompiledGradients, save_the_fewest_bytes) {
  if (!default_device().is_cpu()) GTEST_SKIP() << "which operators are cheap is a matter of the device";
  const auto f = compile([](const Tensor& x) { return ((x * 2 + 1) * x).exp(); });
  const auto g = compile([](const Tensor& x, const Tensor& w) { return ((x.to(kF64) + w) * w).square().to(kF32); });
  const Tensor x = randn({1000}).requires_grad_(), w = randn({1}).to(kF64).requires_grad_();
  f(x), g(x, w);
  EXPECT_NE(f.explain().find("\n4000 bytes saved for the backward"), std::string::npos) << f.explain();
  EXPECT_NE(g.explain().find("\n0 bytes saved for the backward"), std::string::npos) << g.explain();
}

/// The capacity of the pipes from one side to the other.
int64_t cut(const std::vector<std::array<int64_t, 3>>& pipes, const std::vector<bool>& on_sink_side) {
  int64_t sum = 0;
  for (const auto& [from, to, capacity] : pipes)
    if (!on_sink_side[static_cast<size_t>(from)] && on_sink_side[static_cast<size_t>(to)]) sum += capacity;
  return sum;
}

TEST(MinCut, is_the_cheapest_of_all_and_the_nearest_to_the_sink) {
  std::mt19937_64 random(1);
  const auto number = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); };
  for (int round = 0; round < 300; ++round) {
    const size_t points = 2 + static_cast<size_t>(number(7));
    compiler::MinCut network(points);
    std::vector<std::array<int64_t, 3>> pipes;
    for (int64_t k = number(20); k > 0; --k) {
      const int64_t from = number(static_cast<int64_t>(points)), to = number(static_cast<int64_t>(points));
      if (from == to) continue;
      pipes.push_back({from, to, number(5)});
      network.add(static_cast<size_t>(from), static_cast<size_t>(to), pipes.back()[2]);
    }
    const std::vector<bool> got = network.on_sink_side();
    ASSERT_TRUE(got[1] && !got[0]);
    for (uint32_t sides = 0; sides < 1u << (points - 2); ++sides) {
      std::vector<bool> other = {false, true};
      for (size_t i = 2; i < points; ++i) other.push_back((sides >> (i - 2) & 1) != 0);
      ASSERT_LE(cut(pipes, got), cut(pipes, other));
      if (cut(pipes, got) < cut(pipes, other)) continue;
      for (size_t i = 2; i < points; ++i) ASSERT_LE(got[i], other[i]) << "another as cheap leaves less to the sink";
    }
  }
}

struct Cube : autograd::Function<Cube> {
  static Tensor forward(autograd::Context& context, const Tensor& x) {
    context.save_for_backward({x});
    return x * x * x;
  }
  static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& grads) {
    const Tensor x = context.saved_tensors()[0];
    return {grads[0] * 3 * x * x};
  }
};

TEST(CompiledGradients, of_functions_of_ones_own) {
  const auto f = [](const Tensors& x) { return Tensors{Cube::apply(x[0] * 2 + x[1]).tanh() - x[1]}; };
  expect_same_gradients(f, leaves({{70}, {70}}));
}

struct NoBackward : autograd::Function<NoBackward> {
  static Tensor forward(autograd::Context&, const Tensor& x) { return x * 2; }
  static std::vector<Tensor> backward(autograd::Context&, const std::vector<Tensor>&) {
    throw std::runtime_error("there is no backward");
  }
};

TEST(CompiledGradients, a_backward_that_throws_throws_where_it_is_wanted_only) {
  const auto f = compile([](const Tensor& x) { return NoBackward::apply(x + 1).exp() * 3; });
  for (int k = 0; k < 5; ++k) {
    const Tensor x = randn({50}).requires_grad_(), y = f(x);
    EXPECT_EQ(bits_of(y), bits_of(((x + 1) * 2).exp() * 3));
    EXPECT_THROW(y.sum().backward(), std::runtime_error);
  }
}

TEST(CompiledGradients, of_checkpoints) {
  const auto f =
      compile([](const Tensor& x) { return autograd::checkpoint([&] { return (x * 2 + 1).exp().sin(); }) * 3; });
  for (int k = 0; k < 5; ++k) {
    const Tensor x = randn({50}).requires_grad_(), z = x.detach().requires_grad_();
    const Tensor y = f(x), expected = (z * 2 + 1).exp().sin() * 3;
    EXPECT_EQ(bits_of(y), bits_of(expected));
    y.sum().backward();
    expected.sum().backward();
    EXPECT_EQ(bits_of(x.grad()), bits_of(z.grad()));
  }
}

TEST(CompiledGradients, on_many_threads) {
  const Tensor w = randn({64}).requires_grad_();
  const auto f = compile([&](const Tensor& x) { return (x * w + 1).exp() - x; });
  const auto work = [&, device = default_device()](uint64_t seed) {
    set_default_device(device);
    for (int k = 0; k < 20; ++k) {
      const Tensor x = randoms({{64}})(seed)[0].requires_grad_(), z = x.detach().requires_grad_();
      f(x).sum().backward();
      const Tensor expected = autograd::grad({((z * w + 1).exp() - z).sum()}, {z})[0];
      EXPECT_EQ(bits_of(x.grad()), bits_of(expected));
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(w.grad().defined());
}

/// Random functions of leaves: those that may not write their arguments.
TEST(CompiledGradients, of_random_functions) {
  for (const uint64_t seed : seeds(300)) {
    SCOPED_TRACE(fmt::format("function {}", seed));
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 20));
    const Function on_copies = [&](const Tensors& x) {
      Tensors copies, results;
      for (const Tensor& a : x) copies.push_back(a.clone());
      for (const Tensor& y : f.call(copies)) results.push_back(y.defined() ? y.clone() : y);
      return results;
    };
    const auto make = [&](uint64_t s) {
      Tensors x = f.make(s);
      for (const Tensor& a : x)
        if (is_floating(a.dtype()) && a.is_leaf()) a.requires_grad_();
      return x;
    };
    try {
      with_gradients(on_copies, make(1), {}, 1);
    } catch (const GradError&) {
      continue;  // what was saved was overwritten
    }
    expect_same_gradients(on_copies, make);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lorry::test
