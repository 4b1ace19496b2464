// compile() as users meet it: what is recorded and when, what runs again, what is refused.

#include "lorry/compile/compile.h"

#include <gtest/gtest.h>

#include <cctype>
#include <sstream>
#include <thread>

#include "lorry/nn/gpt.h"
#include "tests/compile/fused_devices.h"
#include "tests/support/message.h"
#include "tests/support/warnings.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

TEST(CompileFunction, runs_what_it_recorded_with_other_elements) {
  LORRY_NEEDS_FUSED_KERNELS();
  int calls = 0;
  const auto f = compile([&](const Tensor& x, const Tensor& y) {
    ++calls;
    return (x * 2 + y).tanh() - x;
  });
  for (uint64_t seed = 0; seed < 5; ++seed) {
    manual_seed(seed);
    const Tensor x = randn({17, 33}), y = randn({33});
    EXPECT_EQ(bits_of(f(x, y)), bits_of((x * 2 + y).tanh() - x));
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(f.stats().hits, 4);
  EXPECT_NE(f.explain().find("bytes saved"), std::string::npos) << f.explain();
}

TEST(CompileFunction, draws_as_the_function_would) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto noisy = [](const Tensor& x) { return dropout(x, 0.5) * 2 + rand({300}); };
  const auto f = compile(noisy);
  const Tensor x = ones({300});
  std::vector<std::string> bits[2];
  for (const bool compiled : {false, true}) {
    manual_seed(1);
    for (int k = 0; k < 4; ++k) {
      if (k == 3) manual_seed(2);
      bits[compiled].push_back(bits_of(compiled ? f(x) : noisy(x)));
    }
  }
  EXPECT_EQ(bits[1], bits[0]);
  EXPECT_EQ(f.stats().hits, 3);
}

TEST(CompileFunction, takes_and_gives_all_kinds_of_arguments) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Tensor x = randn({40}), none;
  const auto pair = compile([](const std::vector<Tensor>& list, double scale, bool negate) {
    const Tensor sum = list[0] * scale + list[1];
    return std::pair<Tensor, Tensor>(negate ? -sum : sum, list[0].exp() + 1);
  });
  const auto many = compile([](const Tensor& a, const Tensor& b) {
    return std::vector<Tensor>{b.defined() ? a + b : a * 2 + 1, Tensor()};
  });
  const auto nothing = compile([](const Tensor& a) { a.mul_(2).add_(1); });
  for (int k = 0; k < 3; ++k) {
    const auto [a, b] = pair(std::vector<Tensor>{x, x}, 3.0, k == 1);
    EXPECT_EQ(bits_of(a), bits_of(k == 1 ? -(x * 3.0 + x) : x * 3.0 + x));
    EXPECT_EQ(bits_of(b), bits_of(x.exp() + 1));
    const std::vector<Tensor> got = many(x, k == 1 ? x : none);
    EXPECT_EQ(bits_of(got[0]), bits_of(k == 1 ? x + x : x * 2 + 1));
    EXPECT_FALSE(got[1].defined());
    const Tensor written = x.clone();
    nothing(written);
    EXPECT_EQ(bits_of(written), bits_of(x * 2 + 1));
  }
  EXPECT_EQ(pair.stats().recordings, 2);
  EXPECT_EQ(pair.stats().hits, 1);
}

TEST(CompileFunction, gives_as_many_results_as_the_arguments_and_their_elements_ask_for) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto powers = compile([](const Tensor& x, int count) {
    std::vector<Tensor> all;
    for (int k = 0; k < count; ++k) all.push_back((k == 0 ? x : all.back()) * x + 1);
    return all;
  });
  const auto halves = compile([](const Tensor& x) {
    std::vector<Tensor> all{x * 2 + 1};
    while (all.back().sum().item<float>() > 10) all.push_back(all.back() * 0.5 - 1);
    return all;
  });
  for (const int count : {2, 3, 0, 2, 3}) {
    const Tensor x = full({16}, count + 0.5);
    EXPECT_EQ(powers(x, count).size(), static_cast<size_t>(count));
    std::vector<Tensor> expected{x * 2 + 1};
    while (expected.back().sum().item<float>() > 10) expected.push_back(expected.back() * 0.5 - 1);
    const std::vector<Tensor> got = halves(x);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(bits_of(got[i]), bits_of(expected[i]));
  }
  EXPECT_EQ(powers.stats().recordings, 3);
}

TEST(CompileFunction, records_again_for_what_differs_and_says_why) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = compile([](const Tensor& x, const Tensor& y) { return (x + y) * x; });
  const Tensor x = randn({8, 6});
  f(x, x.clone());
  struct Case {
    Tensor x, y;
    const char* reason;
  };
  const Tensor leaf = randn({8, 6}).requires_grad_();
  const NoGrad quiet;
  f(x, x.clone());
  for (const Case& c : {Case{randn({6, 8}).t(), randn({8, 6}), "argument 0 differs"},
                        Case{randn({8, 6}), randn({6}), "argument 1 differs"}, Case{x, x, "do not share memory"},
                        Case{x.to(kF64), x.to(kF64), "argument 0 differs"}, Case{leaf, x, "gradients"}}) {
    Warnings warnings;
    const int64_t before = f.stats().recordings;
    EXPECT_EQ(bits_of(f(c.x, c.y)), bits_of((c.x + c.y) * c.x)) << c.reason;
    EXPECT_EQ(bits_of(f(c.x, c.y)), bits_of((c.x + c.y) * c.x)) << c.reason;
    EXPECT_EQ(f.stats().recordings, before + 1) << c.reason;
    EXPECT_NE(warnings.all().find(c.reason), std::string::npos) << c.reason << ": " << warnings.all();
  }
}

TEST(CompileFunction, sizes_alone_make_no_variants) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f =
      compile([](const Tensor& x) { return (x * 2 + 1).relu().softmax(-1) * static_cast<double>(x.size(0)); });
  for (int64_t n = 2; n < 52; ++n)
    for (int k = 0; k < 2; ++k) {
      const Tensor x = randn({n, 16});
      EXPECT_EQ(bits_of(f(x)), bits_of((x * 2 + 1).relu().softmax(-1) * static_cast<double>(n)));
    }
  EXPECT_EQ(f.stats().variants, 1);
  EXPECT_EQ(f.stats().cached, 50);
  EXPECT_EQ(f.stats().hits, 50);
}

TEST(CompileFunction, holds_no_more_than_its_limit) {
  const auto f = compile([](const Tensor& x) { return x * 2 + 1; }, {.cache_size_limit = 3});
  Warnings warnings;
  for (int64_t n = 1; n < 8; ++n) EXPECT_EQ(bits_of(f(ones({n}))), bits_of(full({n}, 3.0f)));
  EXPECT_EQ(f.stats().cached, 3);
  EXPECT_EQ(f.stats().dropped, 4);
  EXPECT_NE(warnings.all().find("exceed the limit"), std::string::npos);
  EXPECT_THROW(compile([](const Tensor& x) { return x; }, {.cache_size_limit = 0}), ValueError);
}

TEST(CompileFunction, a_host_read_leaves_the_function_as_it_is) {
  Warnings warnings;
  const auto f = compile([](const Tensor& x) { return x.sum().item<float>() > 0 ? x * 2 + 1 : x - 1; });
  for (const float value : {1.0f, -1.0f, 1.0f}) {
    const Tensor x = full({4}, value);
    EXPECT_EQ(bits_of(f(x)), bits_of(value > 0 ? x * 2 + 1 : x - 1));
  }
  EXPECT_NE(warnings.all().find("item"), std::string::npos) << warnings.all();
  EXPECT_NE(f.explain().find("item"), std::string::npos) << f.explain();
  const auto whole = compile([](const Tensor& x) { return x * x.sum().item<float>() + 1; }, {.fullgraph = true});
  for (int call = 0; call < 2; ++call)
    EXPECT_NE(message<CompileError>([&] { whole(ones({4})); }).find("item"), std::string::npos) << call;
}

TEST(CompileFunction, what_it_captures_may_be_written_moved_and_replaced) {
  LORRY_NEEDS_FUSED_KERNELS();
  Tensor weight = randn({16}), leaf = randn({16}).requires_grad_();
  const auto f = compile([&](const Tensor& x) {
    const NoGrad quiet;
    return (x * weight + leaf).sigmoid();
  });
  const auto expect = [&](const char* what) {
    for (int k = 0; k < 2; ++k) {
      const Tensor x = randn({16});
      EXPECT_EQ(bits_of(f(x)), bits_of((x * weight + leaf).sigmoid().detach())) << what;
    }
  };
  expect("first");
  weight.fill_(3);
  expect("written");
  EXPECT_EQ(f.stats().recordings, 1);
  weight = randn({16});
  expect("replaced");
  leaf.set_data(randn({16}));
  expect("moved");
  EXPECT_EQ(f.stats().recordings, 3);
}

TEST(CompileFunction, what_it_captures_may_be_arranged_differently) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Tensor table = randn({3, 8}), square = randn({8, 8}), row = table[0].detach();
  const auto f = compile([&](const Tensor& x) { return x * square + row; });
  const auto expect = [&](const char* what) {
    for (int k = 0; k < 2; ++k) {
      const Tensor x = randn({8, 8});
      EXPECT_EQ(bits_of(f(x)), bits_of(x * square + row)) << what;
    }
  };
  expect("first");
  square.t_();
  expect("transposed in place");
  row.set_data(table[1]);
  expect("moved within its memory");
  row.set_data(table.select(1, 0).narrow(0, 0, 1));
  expect("broadcast now");
  EXPECT_EQ(f.stats().recordings, 4);
}

TEST(CompileFunction, a_throwing_call_changes_nothing_that_was_recorded) {
  LORRY_NEEDS_FUSED_KERNELS();
  bool fails = true;
  const auto f = compile([&](const Tensor& x) {
    const Tensor y = x * 2 + 1;
    if (fails) throw std::runtime_error("midway");
    return y;
  });
  EXPECT_THROW(f(ones({4})), std::runtime_error);
  fails = false;
  for (int k = 0; k < 3; ++k) EXPECT_EQ(bits_of(f(ones({4}))), bits_of(full({4}, 3.0f)));
  EXPECT_EQ(f.stats().hits, 2);
}

TEST(CompileFunction, calls_itself_and_others) {
  const auto inner = compile([](const Tensor& x) { return x * 2 + 1; });
  std::function<Tensor(const Tensor&, int)> again;
  const auto outer = compile(
      [&](const Tensor& x, int depth) -> Tensor { return depth == 0 ? inner(x) : again(x, depth - 1) - inner(x); });
  again = [&](const Tensor& x, int depth) { return outer(x, depth); };
  for (int k = 0; k < 3; ++k) {
    const Tensor x = randn({9}), y = x * 2 + 1;
    EXPECT_EQ(bits_of(outer(x, 2)), bits_of(y - y - y));
  }
}

TEST(CompileFunction, is_called_by_many_threads) {
  const auto f = compile([](const Tensor& x) { return (x * 3 - 1).abs(); });
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t, device = default_device()] {
      set_default_device(device);
      for (int k = 0; k < 50; ++k) {
        const Tensor x = full({1 + (t + k) % 5}, static_cast<float>(k));
        wrong += bits_of(f(x)) != bits_of((x * 3 - 1).abs());
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CompileFunction, an_argument_that_gets_a_history_leaves_the_function_as_it_is) {
  const Tensor w = randn({4}).requires_grad_();
  const auto f = compile([&](const Tensor& x) { x.mul_(w).add_(1); });
  for (int k = 0; k < 5; ++k) {
    const Tensor x = ones({4});
    w.set_grad({});
    f(x);
    x.sum().backward();
    EXPECT_EQ(bits_of(w.grad()), bits_of(ones({4})));
  }
}

TEST(CompileFunction, a_captured_tensor_that_gets_a_history_leaves_the_function_as_it_is) {
  const Tensor w = randn({20}).requires_grad_();
  Tensor totals[2] = {zeros({}), zeros({})};
  const auto add = [&](const Tensor& x, const Tensor& total) {
    const Tensor loss = ((x * w).exp() + 1).sum();
    total.add_(loss);
    return loss.detach();
  };
  const auto f = compile([&](const Tensor& x) { return add(x, totals[0]); });
  for (int k = 0; k < 4; ++k) {
    const Tensor x = randn({20});
    EXPECT_EQ(bits_of(f(x)), bits_of(add(x, totals[1])));
  }
  EXPECT_EQ(bits_of(totals[0]), bits_of(totals[1]));
  Tensor gradients[2];
  for (int k : {0, 1}) gradients[k] = autograd::grad({totals[k]}, {w})[0];
  EXPECT_EQ(bits_of(gradients[0]), bits_of(gradients[1]));
  EXPECT_NE(f.explain().find("gets a history"), std::string::npos) << f.explain();
}

TEST(CompileFunction, whoever_listens_hears_every_operator) {
  const auto f = compile([](const Tensor& x) { return x * 2 + 1; });
  const Tensor x = randn({4});
  for (int k = 0; k < 3; ++k) f(x);
  static int calls;
  calls = 0;
  static constexpr door::Listener kCounter{.bit = kUserMode, .after = [](const door::CallView&, void*) { ++calls; }};
  const door::ListenerScope listening(kCounter);
  f(x);
  EXPECT_EQ(calls, 2);
}

TEST(CompileFunction, a_function_that_keeps_tensors_runs_as_it_is) {
  std::vector<Tensor> held;
  const auto f = compile([&](const Tensor& x) {
    held.push_back(x * 2 + 1);
    return held.back() + 1;
  });
  for (int k = 0; k < 5; ++k)
    EXPECT_EQ(bits_of(f(full({3}, 1.0f * static_cast<float>(k)))),
              bits_of(full({3}, 2.0f * static_cast<float>(k) + 2)));
  ASSERT_EQ(held.size(), 5u);
  for (int k = 0; k < 5; ++k)
    EXPECT_EQ(held[static_cast<size_t>(k)][0].item<float>(), 2.0f * static_cast<float>(k) + 1);
}

// ---- training -------------------------------------------------------------------------------------------------------

struct Model {
  Tensor w = (manual_seed(5), randn({12, 12}).requires_grad_()), b = zeros({12}).requires_grad_();
  optim::AdamW optimizer{{{"w", w}, {"b", b}}, {.lr = 1e-2}};
  optim::LRScheduler schedule{optimizer, {.kind = optim::Schedule::Kind::cosine, .warmup = 2, .steps = 12}};

  Tensor loss(const Tensor& x) const { return (matmul(x, w) + b).tanh().square().mean(); }
  std::string bits() const { return bits_of(w) + bits_of(b) + fmt::format("{}", optimizer.lr()); }
};

TEST(CompileFunction, a_training_step_with_its_schedule) {
  LORRY_NEEDS_FUSED_KERNELS();
  Model plain, compiled;
  const auto step_of = [](Model& m, const Tensor& x) {
    m.optimizer.zero_grad();
    const Tensor loss = m.loss(x);
    loss.backward();
    m.optimizer.step();
    m.schedule.step();
    return loss.detach();
  };
  const auto step = compile([&](const Tensor& x) { return step_of(compiled, x); });
  for (uint64_t k = 0; k < 12; ++k) {
    manual_seed(k);
    const Tensor x = randn({20, 12});
    const Tensor expected = step_of(plain, x), got = step(x);
    EXPECT_EQ(bits_of(got), bits_of(expected)) << k;
    EXPECT_EQ(compiled.bits(), plain.bits()) << k;
  }
  EXPECT_EQ(step.stats().hits, 10) << step.explain();
  EXPECT_EQ(compiled.optimizer.state_dict().size(), plain.optimizer.state_dict().size());
}

// Each operator of the step is in one unit of the explanation; some units save bytes, and some say why they are alone.
TEST(CompileFunction, explains_the_training_step_of_a_gpt) {
  LORRY_NEEDS_FUSED_KERNELS();
  manual_seed(1);
  const nn::GPT model({.vocab = 32, .context = 16, .layers = 2, .heads = 2, .width = 32});
  optim::AdamW optimizer(model.named_parameters(), {.lr = 1e-3});
  const auto step = compile(
      [&](const Tensor& tokens, const Tensor& targets) {
        optimizer.zero_grad();
        const Tensor loss = model.loss(tokens, targets);
        loss.backward();
        optimizer.step({.max_norm = 1.0});
        return loss.detach();
      },
      {.wait = true});
  for (int call = 0; call < 4; ++call) step(randint(0, 32, {4, 16}), randint(0, 32, {4, 16}));
  EXPECT_GT(step.stats().hits, 0);
  const std::string text = step.explain();
  int64_t units = 0, saving = 0, saved = 0, reasons = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    units += std::isdigit(static_cast<unsigned char>(line[0]));
    if (const size_t at = line.find(" bytes saved"); at != line.npos) {
      const size_t begin = line.rfind(' ', at - 1) + 1;
      const int64_t bytes = std::stoll(line.substr(begin, at - begin));
      saving += bytes > 0, saved += bytes;
    }
    if (const size_t at = line.find("not fused with an earlier unit: "); at != line.npos) {
      ++reasons;
      EXPECT_GT(line.size(), at + 35) << line;
    }
  }
  EXPECT_GT(units, 20) << text;
  EXPECT_GT(saving, 3) << text;
  // At least the activations of both layers, [64, 32] f32, are not written and read again.
  EXPECT_GT(saved, 2 * 2 * 64 * 32 * 4) << text;
  EXPECT_GT(reasons, 0) << text;
  for (const char* op : {"embedding", "layer_norm", "gelu", "cross_entropy", "add", "optimizer_step"})
    EXPECT_NE(text.find(op), text.npos) << op << " is missing in\n" << text;
}

TEST(CompileFunction, an_optimizer_and_its_schedule_alone) {
  LORRY_NEEDS_FUSED_KERNELS();
  Model plain, compiled;
  const auto step = compile([&] {
    compiled.optimizer.step();
    compiled.schedule.step();
  });
  for (uint64_t k = 0; k < 10; ++k)
    for (Model* m : {&plain, &compiled}) {
      manual_seed(k);
      m->optimizer.zero_grad(k % 3 == 0);
      m->loss(randn({20, 12})).backward();
      if (m == &compiled) {
        step();
        EXPECT_EQ(compiled.bits(), plain.bits()) << k;
      } else {
        m->optimizer.step();
        m->schedule.step();
      }
    }
}

TEST(CompileFunction, gradients_are_added_to_those_that_are_there) {
  LORRY_NEEDS_FUSED_KERNELS();
  Model plain, compiled;
  const auto backward = compile([&](const Tensor& x) { compiled.loss(x).backward(); });
  for (uint64_t k = 0; k < 8; ++k) {
    manual_seed(k);
    const Tensor x = randn({20, 12});
    if (k == 3) plain.w.set_grad({}), compiled.w.set_grad({});
    if (k == 6) plain.w.set_grad(ones({12, 12})), compiled.w.set_grad(ones({12, 12}));
    plain.loss(x).backward();
    backward(x);
    EXPECT_EQ(bits_of(compiled.w.grad()), bits_of(plain.w.grad())) << k;
    EXPECT_EQ(bits_of(compiled.b.grad()), bits_of(plain.b.grad())) << k;
  }
  EXPECT_GE(backward.stats().hits, 2);
}

TEST(CompileFunction, a_number_that_the_tape_saves_is_no_captured_tensor) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Tensor w = randn({16}).requires_grad_();
  const auto gradient = [&](const Tensor& x) {
    w.set_grad({});
    (w * 2.5 / 3 * x).tanh().sum().backward();
  };
  const auto compiled = compile(gradient);
  for (int k = 0; k < 5; ++k) {
    const Tensor x = randn({16});
    gradient(x);
    const std::string expected = bits_of(w.grad());
    compiled(x);
    EXPECT_EQ(bits_of(w.grad()), expected) << k;
  }
  EXPECT_EQ(compiled.stats().hits, 4) << compiled.explain();
}

TEST(CompileFunction, refuses_numbers_that_the_host_sets) {
  Model m;
  const auto step = compile(
      [&](const Tensor& x) {
        m.loss(x).backward();
        m.optimizer.set_lr(0.5);
      },
      {.fullgraph = true});
  EXPECT_NE(message<CompileError>([&] { step(ones({3, 12})); }).find("sets a number"), std::string::npos);
}

TEST(CompileFunction, results_with_gradients_come_from_the_function_as_it_is) {
  const Tensor w = randn({4}).requires_grad_();
  const auto f = compile([&](const Tensor& x) { return (x * w + 1).tanh(); });
  for (int k = 0; k < 5; ++k) {
    const Tensor x = randn({4});
    w.set_grad({});
    f(x).sum().backward();
    const Tensor got = w.grad();
    w.set_grad({});
    (x * w + 1).tanh().sum().backward();
    EXPECT_EQ(bits_of(got), bits_of(w.grad()));
  }
}

}  // namespace
}  // namespace lorry::test
