// Random numbers of recorded functions: a graph goes on drawing where its generators stand, as the function does.

#include "tests/trace/draws.h"

#include <memory>

#include "tests/support/message.h"

namespace lorry::test {
namespace {

using trace::Graph;

void has(const std::string& text, const char* part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

TEST(TraceDraws, a_graph_draws_as_the_function_would) {
  const auto make = randoms({{64}, {4, 30}});
  const Graph graph = expect_traced(make, draw_all());
  expect_draws_go_on(make, draw_all(), [&](const Tensors& x) { return trace::interpret(graph, x); });
}

TEST(TraceDraws, are_numbered_in_the_graph) {
  const Graph graph = expect_traced(randoms({{8}}), [](const Tensors& x) {
    rand({0});
    return Tensors{dropout(x[0], 0.5), x[0] + 1};
  });
  has(trace::to_string(graph), "generator 0: 2 draws\n");
  has(trace::to_string(graph), "draw 1 of generator 0");
}

/// A training step with dropout in attention and between layers, gradients of both included.
struct Training {
  nn::GPT model;
  optim::AdamW optimizer;
  bool recompute;

  explicit Training(bool checkpointed)
      : model((manual_seed(3),
               nn::GPTConfig{.vocab = 32, .context = 8, .layers = 2, .heads = 2, .width = 16, .dropout = 0.3})),
        optimizer(model.named_parameters(), {.lr = 1e-2}),
        recompute(checkpointed) {}

  Tensors step(const Tensors& x) {
    optimizer.zero_grad();
    const auto logits = [&] { return model(x[0]); };
    const Tensor out = recompute ? autograd::checkpoint(logits) : logits();
    const Tensor loss = cross_entropy(out.flatten(0, 1), x[1].flatten());
    loss.backward();
    optimizer.step();
    return {loss.detach()};
  }
};

class TraceDropout : public testing::TestWithParam<bool> {};

TEST_P(TraceDropout, training_goes_on_to_the_bit) {
  Training plain(GetParam()), traced(GetParam());
  const Tensors batch = [] {
    manual_seed(1);
    return Tensors{randint(32, {2, 8}), randint(32, {2, 8})};
  }();
  std::vector<std::string> losses[2];
  for (const bool recorded : {false, true}) {
    Training& training = recorded ? traced : plain;
    manual_seed(5);
    std::optional<Graph> graph;
    for (int k = 0; k < 6; ++k) {
      if (k == 4) manual_seed(6);
      Tensors loss;
      if (recorded && k == 2) {
        trace::Recorder recorder(batch);
        loss = training.step(batch);
        graph = trace::functionalise(recorder.finish(loss));
      } else {
        loss = graph ? trace::interpret(*graph, batch) : training.step(batch);
      }
      losses[recorded].push_back(bits_of(loss[0]));
    }
    losses[recorded].push_back(fmt::format("{}", default_generator().state().offset));
  }
  EXPECT_EQ(losses[0], losses[1]);
  const auto a = traced.model.named_parameters(), b = plain.model.named_parameters();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(bits_of(a[i].second), bits_of(b[i].second)) << a[i].first;
}

INSTANTIATE_TEST_SUITE_P(Training, TraceDropout, testing::Bool(),
                         [](const auto& info) { return info.param ? "checkpointed" : "plain"; });

TEST(TraceDraws, go_on_in_the_generator_that_was_given) {
  Generator a(1), b(2), plain_a(1), plain_b(2);
  const auto f = [](Generator& x, Generator& y) {
    Generator inside(7);  // another one each time: the same numbers in each run
    inside.manual_seed(8);
    return Tensors{rand({9}, {}, &x), rand({9}, {}, &y), rand({9}), rand({9}, {}, &x), rand({9}, {}, &inside)};
  };
  trace::Recorder recorder({});
  const Tensors first = f(a, b);
  const Graph graph = trace::functionalise(recorder.finish(first));
  EXPECT_EQ(graph.generators.size(), 3u);
  f(plain_a, plain_b);
  for (int k = 0; k < 3; ++k) {
    manual_seed(static_cast<uint64_t>(k));
    const Tensors expected = f(plain_a, plain_b);
    manual_seed(static_cast<uint64_t>(k));
    const Tensors got = trace::interpret(graph, {});
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(bits_of(got[i]), bits_of(expected[i])) << "result " << i;
    EXPECT_EQ(a.state(), plain_a.state());
    EXPECT_EQ(b.state(), plain_b.state());
  }
}

TEST(TraceDraws, graphs_hold_what_they_draw_from) {
  auto generator = std::make_unique<Generator>(4);
  trace::Recorder recorder({});
  const Tensor first = rand({9}, {}, generator.get());
  const Graph graph = trace::functionalise(recorder.finish({&first, 1}));
  generator = nullptr;
  Generator same(4);
  rand({9}, {}, &same);
  EXPECT_EQ(bits_of(trace::interpret(graph, {})[0]), bits_of(rand({9}, {}, &same)));
}

TEST(TraceDraws, a_run_that_is_refused_draws_nothing) {
  const Graph graph = expect_traced(randoms({{8}}), [](const Tensors& x) { return Tensors{dropout(x[0], 0.5)}; });
  manual_seed(2);
  EXPECT_THROW(trace::interpret(graph, {}), ValueError);
  EXPECT_EQ(default_generator().state(), (Generator::State{2, 0}));
}

TEST(TraceDraws, the_backward_of_an_earlier_forward_drops_what_that_did) {
  const Tensor x = ones({1, 2, 16, 4}).requires_grad_(), scale = ones({});
  const Tensor y = scaled_dot_product_attention(x, x, x, {}, {.dropout = 0.5});
  trace::Recorder recorder({&scale, 1});
  const Tensors first = autograd::grad({y}, {x}, {ones_like(y)}, {.retain_graph = true});
  const Graph graph = trace::functionalise(recorder.finish(first));
  EXPECT_TRUE(graph.generators.empty());
  manual_seed(99);
  EXPECT_EQ(bits_of(trace::interpret(graph, {&scale, 1})[0]), bits_of(first[0]));
}

TEST(TraceDraws, refuses_generators_that_the_function_sets_or_reads) {
  const auto obstacle = [](const std::function<void()>& f) {
    return message<CompileError>([&] {
      trace::Recorder recorder({});
      f();
      trace::functionalise(recorder.finish({}));
    });
  };
  Generator generator(3), a(4), b(4);
  has(obstacle([] { manual_seed(3); }), "manual_seed: a generator is seeded");
  has(obstacle([&] {
        const Scope scope("noise");
        generator.set_state({1, 2});
      }),
      "in noise: a generator is seeded");
  has(obstacle([&] { generator.state(); }), "the host reads a generator's state");
  has(obstacle([&] { rand({3}, {}, &a), rand({3}, {}, &b); }), "two generators draw the same numbers");
}

TEST(TraceDraws, the_verifier_finds_draws_that_nobody_makes) {
  Graph graph = expect_traced(randoms({{8}}), [](const Tensors& x) { return Tensors{dropout(x[0], 0.5)}; });
  graph.generators[0].draws = 0;
  has(message<CompileError>([&] { trace::verify(graph); }), "beyond those of its generator");
}

}  // namespace
}  // namespace lorry::test
