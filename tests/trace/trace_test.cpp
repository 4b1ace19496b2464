// What recording makes of functions: values, views, writes, captured tensors, gradients, and what it refuses.

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/message.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

using trace::Graph;

/// The graph without the device, which is the same for all its values.
std::string graph_text(const MakeArguments& make, const Function& f) {
  std::string text = trace::to_string(expect_traced(make, f));
  const std::string device = default_device().is_cpu() ? "" : fmt::format(" {}", default_device());
  for (size_t at = 0; !device.empty() && (at = text.find(device, at)) != std::string::npos;)
    text.erase(at, device.size());
  return text;
}

TEST(Trace, records_operators_in_order) {
  EXPECT_EQ(graph_text(randoms({{4, 8}, {8}}), [](const Tensors& x) { return Tensors{(x[0] * 2 + x[1]).relu()}; }),
            "%0: f32 [4, 8] = argument 0\n"
            "%1: f32 [8] = argument 1\n"
            "%2: f32 [4, 8] = mul(%0, 2)\n"
            "%3: f32 [4, 8] = add(%2, %1)\n"
            "%4: f32 [4, 8] = relu(%3)\n"
            "return %4\n");
}

TEST(Trace, views_are_no_nodes) {
  EXPECT_EQ(graph_text(randoms({{4, 8}}),
                       [](const Tensors& x) { return Tensors{x[0].t().slice(0, 1, 8, 2).unsqueeze(0) + 1}; }),
            "%0: f32 [4, 8] = argument 0\n"
            "%1: f32 [1, 4, 4] = add(%0 as [1, 4, 4] by [8, 2, 8] from 1, 1)\n"
            "return %1\n");
}

TEST(Trace, a_write_makes_the_next_value_and_is_written_back_once) {
  const Graph graph = expect_traced(randoms({{4, 8}}), [](const Tensors& x) {
    x[0].add_(1);
    x[0].select(0, 2).mul_(x[0].select(0, 1));
    return Tensors{x[0].sum()};
  });
  EXPECT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.write_backs.size(), 1u);
  EXPECT_EQ(graph.outputs[0].input, -1);
}

TEST(Trace, writes_through_overlapping_views) {
  expect_traced(randoms({{6, 6}, {4, 6}}), [](const Tensors& x) {
    const Tensor upper = x[0].slice(0, 0, 4), lower = x[0].slice(0, 2, 6), column = x[0].t().select(0, 3);
    upper.add_(x[1]);
    lower.mul_(2);
    column.copy_(x[0].select(0, 5));
    const Tensor seen = upper.clone();
    lower.t().select(0, 1).fill_(3);
    return Tensors{seen, lower, column * upper.select(1, 0).sum()};
  });
}

TEST(Trace, results_share_memory_as_they_did) {
  const Graph graph = expect_traced(randoms({{4, 4}}), [](const Tensors& x) {
    const Tensor y = x[0] + 1;
    return Tensors{x[0], x[0].select(0, 1), y, y.t(), y.select(0, 2)};
  });
  EXPECT_EQ(graph.outputs[0].input, 0);
  EXPECT_EQ(graph.outputs[1].input, 0);
  EXPECT_EQ(graph.outputs[2].input, -1);
}

TEST(Trace, arguments_share_memory) {
  const auto make = [](uint64_t seed) {
    manual_seed(seed);
    const Tensor x = randn({5, 5});
    return Tensors{x.select(0, 1), x, x.t().select(0, 1), randn({5})};
  };
  const Graph graph = expect_traced(make, [](const Tensors& x) {
    x[0].add_(x[3]);
    x[1].mul_(2);
    return Tensors{x[2] + x[0]};
  });
  EXPECT_EQ(graph.inputs.size(), 2u);
  // Other sharing is another function.
  Tensors apart = make(1);
  apart[0] = apart[0].clone();
  EXPECT_NE(message<ValueError>([&] { trace::interpret(graph, apart); }).find("do not share memory"),
            std::string::npos);
}

TEST(Trace, parts_of_one_storage_that_do_not_meet_are_inputs_of_their_own) {
  const Graph graph = expect_traced(
      [](uint64_t seed) {
        manual_seed(seed);
        const Tensor x = randn({6, 5});
        return Tensors{x.slice(0, 0, 2), x.slice(0, 4, 6)};
      },
      [](const Tensors& x) {
        x[0].add_(x[1]);
        return Tensors{x[0]};
      });
  EXPECT_EQ(graph.inputs.size(), 2u);
}

TEST(Trace, memory_is_found_again_from_an_argument_that_lies_in_it) {
  const auto make = [](uint64_t seed) {
    manual_seed(seed);
    const Tensor x = randn({6, 5});
    return Tensors{x.slice(0, 0, 2), x.slice(0, 4, 6)};
  };
  const Function f = [](const Tensors& x) { return Tensors{x[0] + x[1]}; };
  const Graph graph = expect_traced(make, f);
  const auto apart = [](uint64_t seed) {
    manual_seed(seed);
    return Tensors{randn({2, 5}), randn({2, 5})};
  };
  expect_same(run_graph(apart, graph, 3), run_plain(apart, f, 3), "in storages of their own");
  // What lies beside an argument does not come with another one.
  const Tensor base = randn({5, 5}), row = base.select(0, 1);
  EXPECT_NE(message<CompileError>([&] {
              trace::Recorder recorder({&row, 1});
              const Tensor y = row + base;
              trace::functionalise(recorder.finish({&y, 1}));
            }).find("beside an argument's"),
            std::string::npos);
}

TEST(Trace, storages_of_one_piece_of_memory_are_refused) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  const auto blob = [&](float* from) { return from_blob(from, {4}, {kF32, kCPU}); };
  const Tensors x{blob(memory), blob(memory + 2)};
  EXPECT_NE(message<CompileError>([&] {
              trace::Recorder recorder(x);
              const Tensor y = x[0] + x[1];
              trace::functionalise(recorder.finish({&y, 1}));
            }).find("two storages share memory"),
            std::string::npos);
}

TEST(Trace, captured_tensors_are_inputs) {
  const Tensor weight = ones({4}), count = zeros({});
  const Graph graph = trace::functionalise([&] {
    const Tensor x = ones({4});
    trace::Recorder recorder({&x, 1});
    count.add_(1);
    const Tensor y = x * weight;
    return recorder.finish({&y, 1});
  }());
  EXPECT_EQ(count.item<float>(), 1);
  weight.fill_(5);
  const Tensor x = full({4}, 2.0f);
  EXPECT_TRUE(trace::interpret(graph, {&x, 1})[0].equal(full({4}, 10.0f)));
  EXPECT_EQ(count.item<float>(), 2);
}

TEST(Trace, elements_from_the_host_are_constants) {
  const Graph graph = expect_traced(randoms({{3}}), [](const Tensors& x) {
    const Tensor table = tensor({1.0f, 2.0f, 3.0f});
    const Tensor filled = empty({3}, {kF32, kCPU});
    for (int i = 0; i < 3; ++i) filled.data<float>()[i] = static_cast<float>(i);
    table.add_(filled.to(table.device()));
    return Tensors{x[0] * table, filled};
  });
  EXPECT_EQ(graph.constants.size(), 2u);
  // What is returned is the caller's to write.
  const Tensors arguments = randoms({{3}})(1);
  trace::interpret(graph, arguments)[1].fill_(100);
  EXPECT_EQ(trace::interpret(graph, arguments)[1].sum().item<float>(), 3);
}

TEST(Trace, new_memory_written_part_by_part) {
  expect_traced(randoms({{2, 3}}), [](const Tensors& x) {
    const Tensor all = empty({4, 3});
    all.slice(0, 0, 2).copy_(x[0]);
    all.slice(0, 2, 4).copy_(x[0] * 2);
    return Tensors{all, zeros({2}), full({3}, 4).add_(1)};
  });
}

TEST(Trace, out_forms) {
  expect_traced(randoms({{3, 4}, {4}}), [](const Tensors& x) {
    const Tensor out = empty({3, 4}, {kF64});
    add_out(out, x[0], x[1]);
    const Tensor wide = zeros({6, 4});
    mul_out(wide.slice(0, 0, 6, 2), x[0], 3);
    return Tensors{out, wide};
  });
}

TEST(Trace, lists) {
  expect_traced(randoms({{3, 4}, {4}, {0}, {}}), [](const Tensors& x) {
    foreach::mul_(x, 2);
    const auto norms = foreach::norm(x, 2);
    const auto sums = foreach::add(x, 1);
    foreach::zero_({sums[1]});
    return Tensors{norms[0], sums[0], sums[1], sums[2], foreach::norm(x, 1)[3]};
  });
}

TEST(Trace, empty_tensors_and_ranks) {
  expect_traced(randoms({{0, 3}, {}, {1, 1, 1, 1, 1, 1, 1, 2}}), [](const Tensors& x) {
    x[0].add_(1);
    return Tensors{x[0].sum(), x[0].t(), x[1] * 2, x[2].squeeze(), cat({x[0], ones({2, 3})}), x[0]};
  });
}

TEST(Trace, forward_and_backward) {
  const auto make = [](uint64_t seed) {
    manual_seed(seed);
    return Tensors{randn({8, 5}), randn({5, 3}).requires_grad_(), randn({3}).requires_grad_()};
  };
  const Graph graph = expect_traced(make, [](const Tensors& x) {
    const Tensor loss = (x[0].matmul(x[1]) + x[2]).tanh().square().mean();
    loss.backward();
    return Tensors{loss.detach()};
  });
  EXPECT_EQ(graph.grads.size(), 2u);
}

TEST(Trace, gradients_that_are_there_are_added_to) {
  const auto make = [](uint64_t seed) {
    manual_seed(seed);
    const Tensor w = randn({5}).requires_grad_();
    w.set_grad(ones({5}));
    return Tensors{w, w.grad()};
  };
  expect_traced(make, [](const Tensors& x) {
    (x[0] * x[0]).sum().backward();
    return Tensors{};
  });
}

TEST(Trace, gradients_of_captured_leaves) {
  const Tensor w = ones({3}).requires_grad_();
  Tensor x = ones({3});
  trace::Recorder recorder({&x, 1});
  (x * w).sum().backward();
  const Graph graph = trace::functionalise(recorder.finish({}));
  w.set_grad({});
  x = full({3}, 7.0f);
  trace::interpret(graph, {&x, 1});
  EXPECT_TRUE(w.grad().equal(full({3}, 7.0f)));
}

std::string obstacle(const Function& f) {
  return message<CompileError>([&] { run_traced(randoms({{3, 4}}), f, 1); });
}

TEST(Trace, refuses_what_a_graph_cannot_repeat) {
  const auto has = [](const std::string& text, const char* part) {
    SCOPED_TRACE(part);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(obstacle([](const Tensors& x) {
        const Scope scope("evaluation");
        return Tensors{x[0] * x[0].sum().item<float>()};
      }),
      "item, in evaluation: the host reads");
  has(obstacle([](const Tensors& x) { return Tensors{x[0].nonzero()}; }), "the host reads");
  has(obstacle([](const Tensors& x) {
        x[0].transpose_(0, 1);
        return Tensors{};
      }),
      "gets other sizes");
  has(obstacle([](const Tensors& x) {
        x[0].set_data(ones({2}));
        return Tensors{};
      }),
      "another tensor's memory");
  has(obstacle([](const Tensors& x) { return Tensors{x[0].view(kI32).add(1), x[0] + 1}; }), "as f32 and as i32");
}

TEST(Trace, refuses_what_would_be_lost) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nexpected: " << part;
  };
  Tensor state = zeros({3, 4});
  has(obstacle([&](const Tensors& x) {
        state = state + x[0];
        return Tensors{};
      }),
      "still held");
  const Tensor leaf = ones({3, 4}).requires_grad_();
  has(obstacle([&](const Tensors& x) { return Tensors{x[0] * leaf}; }), "a result requires a gradient");
  has(obstacle([&](const Tensors&) {
        leaf.set_grad({});
        leaf.set_grad(ones({3, 4}));
        return Tensors{};
      }),
      "no recorded call reads");
  has(obstacle([](const Tensors& x) {
        const Tensor out = empty({0});
        add_out(out, x[0], 1);
        return Tensors{out};
      }),
      "gets other sizes");
  const MakeArguments shared = [](uint64_t) {
    const Tensor w = ones({3}).requires_grad_();
    return Tensors{w.detach(), w};
  };
  has(message<CompileError>([&] {
        run_traced(
            shared,
            [](const Tensors& x) {
              (x[1] * 2).sum().backward();
              return Tensors{};
            },
            1);
      }),
      "shares its storage");
}

TEST(Trace, refuses_to_run_where_it_would_go_wrong) {
  const Tensor w = ones({3}).requires_grad_(), x = ones({3});
  trace::Recorder recorder({&x, 1});
  (x * w).sum().backward();
  const Graph graph = trace::functionalise(recorder.finish({}));
  {
    trace::Recorder second({&x, 1});
    EXPECT_NE(message<ValueError>([&] { trace::interpret(graph, {&x, 1}); }).find("being recorded"), std::string::npos);
  }
  w.set_data(full({3}, 7.0f));
  EXPECT_NE(message<ValueError>([&] { trace::interpret(graph, {&x, 1}); }).find("other memory"), std::string::npos);
}

TEST(Trace, a_leaf_that_is_read_through_a_view_gets_its_gradient) {
  const Tensor w = ones({3, 2}).requires_grad_(), x = ones({4, 2});
  trace::Recorder recorder({&x, 1});
  x.matmul(w.t()).sum().backward();
  const Graph graph = trace::functionalise(recorder.finish({}));
  w.set_grad({});
  trace::interpret(graph, {&x, 1});
  ASSERT_TRUE(w.grad().defined());
  EXPECT_TRUE(w.grad().equal(full({3, 2}, 4.0f)));
}

TEST(Trace, a_function_that_throws_leaves_nothing_behind) {
  const Tensor x = ones({3});
  try {
    trace::Recorder recorder({&x, 1});
    x.add(ones({4}));
    FAIL() << "the sizes do not fit";
  } catch (const ShapeError&) {
  }
  EXPECT_FALSE(trace::Recorder::active());
  expect_traced(randoms({{3}}), [](const Tensors& y) { return Tensors{y[0] + 1}; });
}

TEST(Trace, one_recording_a_thread) {
  const Tensor x = ones({3});
  trace::Recorder recorder({&x, 1});
  EXPECT_NE(message<ValueError>([&] {
              trace::Recorder second({&x, 1});
            }).find("being recorded already"),
            std::string::npos);
  std::thread([] { expect_traced(randoms({{3}}), [](const Tensors& y) { return Tensors{y[0] + 1}; }); }).join();
  const Tensor y = x * 2;
  EXPECT_EQ(trace::functionalise(recorder.finish({&y, 1})).nodes.size(), 1u);
  const Tensor undefined;
  EXPECT_THROW(trace::Recorder(std::span(&undefined, 1)), ValueError);
}

TEST(Trace, arguments_that_differ_are_refused) {
  const Graph graph = expect_traced(randoms({{3, 4}}), [](const Tensors& x) { return Tensors{x[0] + 1}; });
  for (const Tensor& x : {ones({3}), ones({3, 4}, {kF64}), ones({4, 3}).t(), Tensor()})
    EXPECT_THROW(trace::interpret(graph, {&x, 1}), ValueError);
  EXPECT_THROW(trace::interpret(graph, {}), ValueError);
}

TEST(Trace, the_verifier_finds_broken_graphs) {
  const Graph good = expect_traced(randoms({{3, 4}, {4}}), [](const Tensors& x) {
    x[0].add_(x[1]);
    x[0].select(0, 1).mul_(2);
    return Tensors{x[0].sum(0)};
  });
  const auto broken = [&](const auto& change, const char* why) {
    Graph graph = good;
    change(graph);
    const std::string said = message<CompileError>([&] { trace::verify(graph); });
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  broken([](Graph& g) { std::swap(g.nodes[0], g.nodes[2]); }, "before it is made");
  broken([](Graph& g) { g.nodes[0].arguments[1].value_index = 99; }, "no such value");
  broken([](Graph& g) { g.nodes[1].targets[0].window.offset = 9; }, "outside its value");
  broken([](Graph& g) { g.nodes[1].results[0] = g.nodes[0].results[0]; }, "twice");
  broken([](Graph& g) { g.nodes[1].results.clear(); }, "do not match");
  broken([](Graph& g) { g.nodes[1].form = trace::Node::pure; }, "has targets");
  broken([](Graph& g) { g.write_backs[0].input = 1; }, "another layout");
  broken([](Graph& g) { g.write_backs[0].input = 5; }, "no such input");
  broken([](Graph& g) { g.outputs[0].tensor.value_index = -1; }, "no such value");
  broken([](Graph& g) { g.outputs[0].tensor.dtype = kF64; }, "another dtype");
  broken([](Graph& g) { g.values.push_back(g.values[0]); }, "no node makes");
  broken([](Graph& g) { g.inputs[0].argument = -1; }, "neither an argument nor a captured tensor");
  broken([](Graph& g) { g.nodes[0].generator = 0; }, "no such generator");
  broken([](Graph& g) { g.nodes[0].generator = 0, g.generators.emplace_back(); }, "without a key");
}

}  // namespace
}  // namespace lorry::test
