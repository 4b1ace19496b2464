// Functions that no single graph can repeat, because the host reads what they compute: with deferred calls they give
// the results that they give as they are.

#include "lorry/compile/lazy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lorry/compile/compile.h"
#include "lorry/nn/gpt.h"
#include "tests/compile/fused_devices.h"
#include "tests/support/message.h"
#include "tests/support/scale.h"
#include "tests/trace/random_programs.h"

namespace lorry::test {
namespace {

Tensors run_deferred(compiler::LazyFunction& lazy, const Function& f, const Tensors& arguments) {
  compiler::LazyRun run(lazy);
  EXPECT_TRUE(run.active());
  Tensors results = f(arguments);
  run.finish();
  return results;
}

/// Expects the same of a function as it is and with deferred calls, over several elements, again and again.
void expect_deferred(const MakeArguments& make, const Function& f) {
  compiler::LazyFunction lazy(true);
  for (const uint64_t seed : {1, 1, 2, 2, 1, 3, 3}) {
    const Outcome expected = run_plain(make, f, seed);
    Outcome got{.results = {}, .arguments = make(seed)};
    run_seeded(seed, got, [&](const Tensors& arguments) { return run_deferred(lazy, f, arguments); });
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, lazy.explain()));
    expect_same(got, expected, "deferred");
    EXPECT_EQ(sharing(got), sharing(expected)) << "memory is shared otherwise";
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DeferredCalls, give_the_same_bits_in_random_functions) {
  for (const uint64_t seed : function_seeds(400)) {
    SCOPED_TRACE(fmt::format("function {}", seed));
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 40), seed % 4 != 0);
    expect_deferred(f.make, f.call);
    if (HasFailure()) return;
  }
}

/// A compiled function against the function as it is, over elements of several seeds, more than once each.
template <class F>
CompileStats expect_split(const F& f, const MakeArguments& make, const CompileOptions& options = {.wait = true}) {
  const auto compiled = compile(f, options);
  for (const uint64_t seed : {1, 2, 1, 2, 3, 1, 2}) {
    const Tensors plain = make(seed), arguments = make(seed);
    EXPECT_EQ(bits_of(compiled(arguments[0])), bits_of(f(plain[0]))) << compiled.explain();
    EXPECT_EQ(bits_of(arguments[0]), bits_of(plain[0]));
  }
  EXPECT_NE(compiled.explain().find("not one graph"), std::string::npos) << compiled.explain();
  return compiled.stats();
}

TEST(DeferredCalls, follow_what_the_host_reads) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto branch = [](const Tensor& x) {
    const Tensor y = (x * 2 + 1).relu() - 0.5;
    return y.sum().item<float>() > 40 ? y.exp() * 2 - y : y / 3 + x;
  };
  const CompileStats stats = expect_split(branch, randoms({{4, 16}}));
  EXPECT_EQ(stats.deferred_calls, 6);
  EXPECT_EQ(stats.hits + stats.eager_calls, 0);
  // Newton's method, until it has converged
  expect_split(
      [](const Tensor& x) {
        const Tensor target = x.abs() + 0.1;
        Tensor root = target / 2 + 0.5;
        while ((root * root - target).abs().amax().item<float>() > 1e-3f) root = (root + target / root) * 0.5;
        return root;
      },
      randoms({{100}}));
  // a size that depends on elements
  expect_split([](const Tensor& x) { return x.flatten().gt(0).nonzero() * 2 + 1; }, randoms({{5, 7}}));
  // a number that is another one in every call
  int calls = 0;
  expect_split(
      [&](const Tensor& x) {
        const Tensor y = x * (calls++ / 2) + 1;
        return y.relu() * y.mean().item<float>();
      },
      randoms({{9}}));
}

TEST(DeferredCalls, explain_what_was_fused) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = compile([](const Tensor& x) { return (x * 2 + 1) * (x - 3).relu().sum().item<float>() + 1; });
  for (int call = 0; call < 3; ++call) f(ones({64}));
  EXPECT_NE(f.explain().find("item"), std::string::npos) << f.explain();
  EXPECT_NE(f.explain().find("bytes saved"), std::string::npos) << f.explain();
  const auto single = compile([](const Tensor& x) { return x.cumsum(0) * x.amax().item<float>(); });
  for (int call = 0; call < 8; ++call) single(ones({64}));
  EXPECT_GT(single.stats().eager_calls, 0) << "nothing was fused";
  EXPECT_NE(single.explain().find("nothing to fuse"), std::string::npos) << single.explain();
}

TEST(DeferredCalls, write_in_place_and_through_views) {
  expect_split(
      [](const Tensor& x) {
        const Tensor row = x[0], all = x.t();
        row.mul_(2).add_(1);
        all.sub_(0.5).tanh_();
        if (x.sum().item<float>() > 0) row.copy_(row * 2 + 1);
        x.add_(row.neg().relu());
        return x * 2 + row;
      },
      randoms({{6, 8}}));
}

TEST(DeferredCalls, are_made_before_the_host_takes_an_address) {
  const auto f = [](const Tensor& x) {
    const Tensor y = (x.to(kCPU) * 2 + 1).relu();
    const float first = y.data<float>()[0];
    y.data<float>()[1] = first + 1;
    const Tensor z = y * 3 - 1;
    y.data<float>()[0] = 7;  // z was computed from the element before
    return z * 2 + y;
  };
  expect_split(f, randoms({{50}}));
}

TEST(DeferredCalls, of_what_was_written_before_an_error_are_made) {
  const Tensor state = zeros({20});
  const auto f = compile([&](const Tensor& x) {
    state.add_(x * 2).mul_(0.5);
    if (x.sum().item<float>() < 0) throw std::runtime_error("negative");
    state.add_(x).mul_(2);
    const Tensor twice = x * 2 + 1;
    if (x.amax().item<float>() > 5) throw std::runtime_error("large");
    return state + twice;
  });
  const Tensor expected = zeros({20});
  for (const float value : {1.0f, 1.0f, 1.0f, -1.0f, 6.0f, 6.0f, -1.0f, 1.0f}) {
    const Tensor x = full({20}, value);
    expected.add_(x * 2).mul_(0.5);
    if (value > 0) expected.add_(x).mul_(2);
    if (value < 0 || value > 5) {
      EXPECT_EQ(message<std::runtime_error>([&] { f(x); }), value < 0 ? "negative" : "large");
    } else {
      EXPECT_EQ(bits_of(f(x)), bits_of(expected + (x * 2 + 1)));
    }
    EXPECT_EQ(bits_of(state), bits_of(expected)) << value;
  }
}

TEST(DeferredCalls, keep_autograd_as_it_is) {
  // a training step whose host looks at the loss, and one whose result requires a gradient
  for (const bool inside : {true, false}) {
    std::vector<std::string> bits[2];
    for (const bool is_compiled : {false, true}) {
      manual_seed(1);
      const Tensor w = randn({8, 8}).requires_grad_(), b = zeros({8}).requires_grad_();
      const auto step = [&](const Tensor& x) {
        const Tensor loss = (x.matmul(w) + b).tanh().sub(x).square().mean();
        const float value = loss.item<float>();
        const Tensor scaled = value > 0.5f ? loss * 2 + 1 : loss / 2 + 1;
        if (inside) {
          scaled.backward();
          const NoGrad quiet;
          for (const Tensor& p : {w, b}) {
            p.sub_(p.grad() * 0.1);
            p.set_grad({});
          }
          return loss.detach() * value;
        }
        return scaled;
      };
      const auto compiled = compile(step, {.wait = true});
      for (int call = 0; call < 8; ++call) {
        const Tensor x = randn({4, 8});
        const Tensor loss = is_compiled ? compiled(x) : step(x);
        if (!inside) loss.backward();
        bits[is_compiled].push_back(bits_of(loss) + bits_of(w) + bits_of(b) + bits_of(w.grad()) + bits_of(b.grad()));
      }
      EXPECT_EQ(compiled.stats().deferred_calls, is_compiled ? 7 : 0) << compiled.explain();
    }
    EXPECT_EQ(bits[1], bits[0]) << inside;
  }
}

TEST(DeferredCalls, count_as_writes_where_they_stand) {
  const Tensor w = full({8}, 0.75).requires_grad_();
  const auto f = compile([&](const Tensor& x, bool spoil) {
    const Tensor y = w * 2, z = y * y;
    if (x.sum().item<float>() > 100) return z;
    if (spoil) y.add_(1);  // z's backward needs y
    const Tensor loss = z.sum() + x.sum();
    const Tensor read = y.detach() * x.amax().item<float>();
    return loss + read.sum();
  });
  const Tensor x = randn({8});
  for (int call = 0; call < 6; ++call) {
    f(x, false).backward();
    const std::string error = message<GradError>([&] { f(x, true).backward(); });
    EXPECT_NE(error.find("overwritten in place"), std::string::npos) << error;
  }
  EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(8, 6 * 8 * 0.75f)) << "each call adds 8 w";
}

TEST(DeferredCalls, draw_as_the_function_would) {
  const auto noisy = [](const Tensor& x) {
    const Tensor y = dropout(x * 2 + 1, 0.5) * 3 - 1;
    return y.sum().item<float>() > 0 ? y * rand({300}) + 1 : y - 2;
  };
  const auto f = compile(noisy);
  const Tensor x = ones({300});
  std::vector<std::string> bits[2];
  for (const bool is_compiled : {false, true}) {
    manual_seed(1);
    for (int call = 0; call < 6; ++call) bits[is_compiled].push_back(bits_of(is_compiled ? f(x) : noisy(x)));
  }
  EXPECT_EQ(bits[1], bits[0]);
}

TEST(DeferredCalls, run_in_inference_mode_and_without_gradients) {
  const auto f = [](const Tensor& x) {
    const Tensor y = (x * 2 + 1).relu_();
    return y.sum().item<float>() > 0 ? y.mul_(2).add(1) : y;
  };
  {
    const InferenceMode mode;
    expect_split(f, randoms({{30}}));
  }
  const NoGrad quiet;
  expect_split(f, randoms({{30}}));
}

TEST(DeferredCalls, of_several_threads_at_once) {
  const auto plain = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = y.sum().item<float>() > 0 ? y * 0.5 - 0.25 : y * 0.25 + 0.5;
    return y;
  };
  const auto f = compile(plain);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  const Device device = default_device();
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      set_default_device(device);
      for (int call = 0; call < 40; ++call) {
        const Tensor x = full({64}, (t + call) % 7 - 3);
        wrong += bits_of(f(x)) != bits_of(plain(x));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(DeferredCalls, nest) {
  const auto inner = compile([](const Tensor& x) { return x * 2 + x.sum().item<float>(); });
  const auto outer = compile([&](const Tensor& x) {
    const Tensor y = inner(x + 1) - 1;
    return y.sum().item<float>() > 0 ? inner(y) * 2 : y + 1;
  });
  const auto plain_inner = [](const Tensor& x) { return x * 2 + x.sum().item<float>(); };
  for (int call = 0; call < 5; ++call) {
    const Tensor x = randn({32}), y = plain_inner(x + 1) - 1;
    EXPECT_EQ(bits_of(outer(x)), bits_of(y.sum().item<float>() > 0 ? plain_inner(y) * 2 : y + 1));
    EXPECT_EQ(bits_of(inner(x)), bits_of(plain_inner(x)));
  }
}

TEST(DeferredCalls, read_foreign_memory_when_they_stand) {
  std::vector<float> memory(40, 1.0f);
  const Tensor x = from_blob(memory.data(), {40});
  const auto f = compile([&](const Tensor& y) {
    const Tensor z = x * 2 + 1;
    memory[0] += 1;
    return (z + y) * z.amax().item<float>() + x;
  });
  for (int call = 0; call < 5; ++call) {
    const Tensor y = ones({40}, {.device = kCPU}), z = x * 2 + 1;
    const std::vector<float> before = memory;
    const Tensor got = f(y);
    EXPECT_EQ(bits_of(got), bits_of((z + y) * z.amax().item<float>() + x)) << call;
  }
}

TEST(DeferredCalls, of_a_generating_model_choose_its_words) {
  // a greedy loop whose host reads each token
  manual_seed(3);
  const auto loop = [](const Tensor& logits) {
    Tensor x = logits;
    std::vector<float> chosen;
    for (int i = 0; i < 6; ++i) {
      const Tensor p = softmax(x * 0.7 + 0.1, -1);
      const auto token = p.argmax().item<int64_t>();
      chosen.push_back(static_cast<float>(token));
      x = (x - p * static_cast<double>(token)).tanh();
    }
    return x + chosen.back();
  };
  expect_split(loop, randoms({{50}}));
}

}  // namespace
}  // namespace lorry::test
