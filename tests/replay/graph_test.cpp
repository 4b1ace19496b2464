// Graphs: what changes between replays, training steps, what a capture refuses, and who owns the memory.

#include "lorry/replay/graph.h"

#include <gtest/gtest.h>

#include <thread>

#include "lorry/compile/compile.h"
#include "lorry/device/device.h"
#include "lorry/lorry.h"
#include "tests/support/message.h"
#include "tests/support/sanitizer.h"
#include "tests/support/warnings.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

replay::Graph capture(const std::function<Tensor()>& f, int warm_up = 2) {
  return replay::Graph([&] { return std::vector{f()}; }, {.warm_up = warm_up});
}

TEST(Graph, replays_over_new_elements_of_its_inputs) {
  manual_seed(1);
  const nn::Linear up(24, 48), down(48, 8);
  const NoGrad quiet;
  const Tensor x = randn({5, 24});
  const auto f = [&] { return down(relu(up(x))); };
  replay::Graph graph = capture(f);
  for (int call = 0; call < 4; ++call) {
    x.copy_(randn({5, 24}));
    up.weight.mul_(1.5);  // a value that is written in place needs nothing
    graph.replay();
    EXPECT_TRUE(graph.outputs()[0].equal(f())) << call;
  }
  EXPECT_EQ(graph.stats().replays, 4);
  EXPECT_GT(graph.stats().nodes, 2);
  EXPECT_GT(graph.stats().leases, 4);
}

TEST(Graph, holds_the_results_of_the_run_that_was_captured) {
  const Tensor x = full({4}, 3);
  replay::Graph graph = capture([&] { return x * 2; }, 0);
  EXPECT_EQ(graph.outputs()[0].to_vector<float>(), std::vector<float>(4, 6));
  EXPECT_EQ(graph.stats().replays, 0);
}

TEST(Graph, random_numbers_advance_as_those_of_calls_do) {
  const Tensor x = ones({64});
  const auto f = [&] { return dropout(x, 0.5, true) + rand({64}); };
  manual_seed(9);
  replay::Graph graph = capture(f, 1);
  std::vector<std::string> got;
  for (int call = 0; call < 3; ++call) {
    graph.replay();
    got.push_back(bits_of(graph.outputs()[0]));
  }
  manual_seed(9);
  f(), f();
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(got[static_cast<size_t>(call)] == bits_of(f())) << call;
  EXPECT_NE(got[0], got[1]);
}

TEST(Graph, what_the_host_writes_into_new_memory_is_written_again) {
  if (!default_device().is_cpu()) GTEST_SKIP() << "host memory is not copied to a device in a capture";
  const Tensor x = ones({4});
  const auto f = [&] {
    const Tensor fresh = empty({4});
    for (int i = 0; i < 4; ++i) fresh.data<float>()[i] = static_cast<float>(i);
    const Tensor sum = fresh + x;
    fresh.mul_(10);  // what lies there when the next replay begins
    return sum + fresh;
  };
  replay::Graph graph = capture(f);
  for (int call = 0; call < 3; ++call) {
    graph.replay();
    EXPECT_TRUE(graph.outputs()[0].equal(f())) << call;
  }
}

/// A model, its optimizer, and a step over the tensors x and y at the rate lr.
struct Training {
  explicit Training(DType dtype = kF32)
      : model({.vocab = 32, .context = 16, .layers = 2, .heads = 2, .width = 32, .dropout = 0.1}) {
    model.to(dtype);
    optimizer.emplace(model.named_parameters(), optim::AdamWOptions{});
    optimizer->set_lr(lr);
  }
  Tensor step() {
    const Tensor loss = model.loss(x, y);
    loss.backward();
    optimizer->step({.max_norm = 0.1});
    optimizer->zero_grad();
    return loss.detach();
  }
  void next_batch(uint64_t seed) {
    lr.fill_(1e-2 / static_cast<double>(1 + seed));
    Generator generator(seed);
    x.copy_(randint(0, 32, {4, 16}, {.dtype = kI64}, &generator));
    y.copy_(randint(0, 32, {4, 16}, {.dtype = kI64}, &generator));
  }

  nn::GPT model;
  std::optional<optim::AdamW> optimizer;
  const Tensor x = zeros({4, 16}, {kI64}), y = zeros({4, 16}, {kI64}), lr = zeros({}, {kF64});
};

/// The losses of 12 steps, of which the first `calls` are calls and the others a graph's.
std::vector<std::string> losses_of(int calls, bool compiled) {
  manual_seed(3);
  Training training;
  const auto fused = compile([&] { return training.step(); }, {.wait = true, .epilogues = false});
  const auto step = [&] { return std::vector{compiled ? fused() : training.step()}; };
  std::optional<replay::Graph> graph;
  std::vector<std::string> losses;
  for (int k = 0; k < 12; ++k) {
    training.next_batch(static_cast<uint64_t>(k));
    if (k < calls) {
      losses.push_back(bits_of(step()[0]));
      continue;
    }
    if (graph)
      graph->replay();
    else
      graph.emplace(step, replay::CaptureOptions{.warm_up = 0});
    losses.push_back(bits_of(graph->outputs()[0]));
  }
  EXPECT_EQ(fused.stats().hits > 0, compiled);
  return losses;
}

TEST(Graph, trains_with_the_losses_of_calls_to_the_bit) { EXPECT_TRUE(losses_of(2, false) == losses_of(12, false)); }
TEST(Graph, captures_compiled_training_steps) { EXPECT_TRUE(losses_of(4, true) == losses_of(12, false)); }

TEST(Graph, captures_compiled_functions) {
  const NoGrad quiet;
  const Tensor x = randn({33, 70}), w = randn({70});
  const auto f = [](const Tensor& a, const Tensor& b) { return ((a * 2 + b).tanh() - a).relu() / 3; };
  const auto compiled = compile(f, {.wait = true});
  replay::Graph graph = capture([&] { return compiled(x, w); });
  x.copy_(randn({33, 70}));
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(f(x, w)));
  EXPECT_EQ(compiled.stats().recordings, 1);
}

// ---- tensors that move ----------------------------------------------------------------------------------------------

TEST(Graph, uses_other_memory_after_a_rebind) {
  manual_seed(4);
  const NoGrad quiet;
  const Tensor x = randn({6, 32}), w = randn({32, 32}), b = randn({32});
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return gelu(linear(x, w, b)) + w.select(0, 3);
  };
  replay::Graph graph = capture([&] { return f(x, w, b); });
  Tensor was = w;
  for (int move = 0; move < 3; ++move) {
    const Tensor now = randn({32, 32});
    EXPECT_GE(graph.rebind(was, now), 2);
    graph.replay();
    EXPECT_TRUE(graph.outputs()[0].equal(f(x, now, b))) << move;
    was = now;
  }
  EXPECT_EQ(graph.rebind(was, was), 0);
  EXPECT_THROW(graph.rebind(was, randn({32, 16})), ShapeError);
  EXPECT_THROW(graph.rebind(was, randn({32, 32}).t()), ShapeError);
  EXPECT_THROW(graph.rebind(was, randn({32, 32}).to(kF64)), DTypeError);
  EXPECT_THROW(graph.rebind(Tensor(), was), ValueError);
}

TEST(Graph, follows_tensors_that_move) {
  manual_seed(5);
  nn::GPT model({.vocab = 32, .context = 16, .layers = 2, .heads = 2, .width = 32});
  model.eval();
  const NoGrad quiet;
  const Tensor tokens = arange(12).remainder(7).view({2, 6});
  const auto f = [&] { return model(tokens); };
  replay::Graph graph([&] { return std::vector{f()}; }, {.follow = model.named_parameters()});
  const auto check = [&](int64_t rebuilt) {
    graph.replay();
    EXPECT_TRUE(graph.outputs()[0].equal(f()));
    EXPECT_EQ(graph.stats().rebuilt, rebuilt);
  };
  check(0);
  for (const Tensor& p : model.parameters()) p.mul_(0.9);  // in place
  check(0);
  EXPECT_EQ(graph.stats().rebound, 0);
  for (int move = 0; move < 2; ++move) {
    for (const Tensor& p : model.parameters()) p.set_data(p.detach().mul(1.1));
    check(0);
  }
  EXPECT_GE(graph.stats().rebound, 2 * static_cast<int64_t>(model.parameters().size()));
  EXPECT_GT(graph.stats().leases, 0);
  Warnings warnings;
  model.to(kF64);
  check(1);
  EXPECT_EQ(warnings.texts.size(), 1u);
  check(1);
}

// ---- what a capture refuses -----------------------------------------------------------------------------------------

template <class F>
void expect_refused(const F& f, const std::string& part) {
  const Tensor x = ones({8});
  EXPECT_NE(message<CaptureError>([&] { capture([&] { return f(x * 2); }, 0); }).find(part), std::string::npos)
      << message<CaptureError>([&] { capture([&] { return f(x * 2); }, 0); });
  // everything can be used afterwards
  EXPECT_EQ((x * 3).sum().item<float>(), 24);
  replay::Graph graph = capture([&] { return x * 5; });
  graph.replay();
  EXPECT_EQ(graph.outputs()[0].to_vector<float>(), std::vector<float>(8, 5));
}

TEST(Graph, refuses_that_the_host_reads) {
  expect_refused([](const Tensor& x) { return x * x.sum().item<float>(); }, "item: the host reads [] f32");
  expect_refused([](const Tensor& x) { return nonzero(x); }, "nonzero: the host reads [8] f32");
  expect_refused([](const Tensor& x) { return nonzero(x); }, "use nonzero_static(x, size)");
  expect_refused([](const Tensor& x) { return x.to_vector<float>(), x; }, "to_vector: the host reads");
}

TEST(Graph, refuses_what_only_the_host_does) {
  const auto counts = [](const Tensor& x) {
    trace::host_callback("counter", [] {});
    return (x * 2 + 1).exp();
  };
  expect_refused(counts, "counter: the host does something that no replay would do");
  const auto compiled = compile(counts, {.wait = true});
  for (int call = 0; call < 3; ++call) compiled(ones({8}));
  EXPECT_EQ(compiled.stats().hits, 2);
  expect_refused(compiled, "counter: the host does something that no replay would do");
}

TEST(Graph, refuses_a_capture_inside_a_capture) {
  expect_refused([](const Tensor& x) { return capture([&] { return x * 2; }).outputs()[0]; },
                 "capture: this thread's calls are being captured already");
  const Tensor x = ones({8});
  replay::Graph graph = capture([&] { return x * 2; });
  expect_refused(
      [&](const Tensor& y) {
        graph.replay();
        return y;
      },
      "replay: a graph is replayed while");
}

TEST(Graph, passes_on_what_the_function_throws) {
  const Tensor x = ones({8});
  EXPECT_THROW(capture([&]() -> Tensor { throw std::runtime_error("mine"); }, 0), std::runtime_error);
  EXPECT_THROW(capture([&] { return matmul(x, ones({3, 4})); }, 0), ShapeError);
  EXPECT_EQ(capture([&] { return x + 1; }).outputs()[0].to_vector<float>(), std::vector<float>(8, 2));
  EXPECT_THROW(capture([&] { return x; }, -1), ValueError);
}

TEST(Graph, one_thread_replays_at_a_time) {
  if (!default_device().is_cpu()) GTEST_SKIP() << "a launch returns at once";
  const Tensor x = ones({1 << 20});
  replay::Graph graph = capture([&] {
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = y.exp().log();
    return y;
  });
  std::atomic<bool> ends{false};
  std::atomic<int> refused{0};
  std::thread other([&] {
    while (!ends) try {
        graph.replay();
      } catch (const CaptureError&) {
        ++refused;
      }
  });
  for (int call = 0; call < 200 && refused == 0; ++call) try {
      graph.replay();
    } catch (const CaptureError&) {
      ++refused;
    }
  ends = true;
  other.join();
  EXPECT_GT(refused, 0);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

TEST(Graph, notices_that_memory_it_uses_was_released) {
  Tensor x = ones({300}), w = ones({300});
  std::optional<replay::Graph> graph;
  graph.emplace([&] { return std::vector{x * w}; });
  graph->replay();
  const void* const was = w.data_ptr();
  w = Tensor();
  std::vector<Tensor> others;
  for (int i = 0; i < 50; ++i) others.push_back(zeros({300}));
  for (const Tensor& other : others) EXPECT_NE(other.data_ptr(), was) << "memory of the graph was handed out";
  EXPECT_NE(message<CaptureError>([&] { graph->replay(); }).find("memory that the graph uses was released"),
            std::string::npos);
  EXPECT_THROW(graph->replay(), CaptureError);  // not once
  graph.reset();
  bool again = false;  // in a tensor that may begin elsewhere, if memory in front of it was free too
  for (int i = 0; i < 5000 && !again; ++i) {
    const auto from = reinterpret_cast<uintptr_t>(others.emplace_back(zeros({300})).data_ptr());
    again = from <= reinterpret_cast<uintptr_t>(was) && reinterpret_cast<uintptr_t>(was) < from + 1200;
  }
  EXPECT_TRUE(again || kAddressSanitizer) << "the memory is lost";
}

TEST(Graph, intermediate_memory_belongs_to_the_graph) {
  const Tensor x = full({5000}, 2);
  replay::Graph graph = capture([&] { return (x * 3).sqrt() + 1; });
  std::vector<Tensor> others;
  for (int i = 0; i < 100; ++i) others.push_back(full({5000}, 7));
  graph.replay();
  for (const Tensor& other : others) EXPECT_EQ(other.min().item<float>(), 7);
  EXPECT_TRUE(graph.outputs()[0].equal((x * 3).sqrt() + 1));
}

TEST(Graph, a_replay_allocates_nothing) {
  const Tensor x = ones({700});
  replay::Graph graph = capture([&] { return (x * 3).softmax(-1) + x.sum(); });
  const Device device = x.device();
  const auto live = memory::stats(device).live_blocks;
  memory::reset_peak(device);
  const auto peak = memory::stats(device).peak_allocated;
  for (int call = 0; call < 10; ++call) graph.replay();
  EXPECT_EQ(memory::stats(device).peak_allocated, peak);
  EXPECT_EQ(memory::stats(device).live_blocks, live);
}

TEST(Graph, scans_long_lines_beside_the_scans_of_calls) {
  const Tensor x = arange(0, 200'006).remainder(7).to(kF32).reshape({2, 100'003});
  replay::Graph graph = capture([&] { return x.cumsum(1); });
  for (int call = 0; call < 3; ++call) {
    x.add_(call);
    graph.replay();
    const Tensor of_a_call = x.sub(1).cumsum(1);
    EXPECT_TRUE(graph.outputs()[0].equal(x.cpu().cumsum(1).to(x.device())));
    EXPECT_TRUE(of_a_call.equal(x.cpu().sub(1).cumsum(1).to(x.device())));
  }
}

TEST(Graph, results_outlive_the_graph) {
  const Tensor x = ones({40});
  Tensor y;
  {
    replay::Graph graph = capture([&] { return x + 1; });
    y = graph.outputs()[0];
  }
  std::vector<Tensor> others;
  for (int i = 0; i < 50; ++i) others.push_back(zeros({40}));
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(40, 2));
}

TEST(Graph, a_thousand_captures_leave_nothing_behind) {
  const Tensor x = randn({64, 64});
  const auto once = [&] {
    replay::Graph graph = capture([&] { return relu(matmul(x, x)).sum(); }, 0);
    graph.replay();
  };
  for (int i = 0; i < 3; ++i) once();
  bool grows = true;  // other processes use the device too, but what leaks grows every time
  for (int round = 0; round < 5 && grows; ++round) {
    device::synchronize(x.device());
    const memory::Stats before = memory::stats(x.device());
    const int64_t use = x.device().is_cpu() ? 0 : memory::device_use(x.device());
    for (int i = 0; i < 1000; ++i) once();
    device::synchronize(x.device());
    const memory::Stats after = memory::stats(x.device());
    EXPECT_EQ(after.allocated, before.allocated);
    EXPECT_EQ(after.live_blocks, before.live_blocks);
    EXPECT_EQ(after.waiting, before.waiting);
    EXPECT_LE(after.reserved, before.reserved);
    grows = use > 0 && memory::device_use(x.device()) > use + (16 << 20);
  }
  EXPECT_FALSE(grows);
}

}  // namespace
}  // namespace lorry::test
