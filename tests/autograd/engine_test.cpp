#include "lorry/autograd/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "lorry/memory/memory.h"
#include "lorry/ops/ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace lorry {
namespace {

using test::leaf;
using test::read;
using test::values;
using V = std::vector<double>;

std::string thrown(const std::function<void()>& f) {
  try {
    f();
  } catch (const GradError& e) {
    return e.what();
  }
  return "";
}

TEST(Engine, a_product_gives_each_factor_the_other) {
  const Tensor a = leaf({2}, {3, 4}), b = leaf({2}, {5, 6});
  a.mul(b).sum().backward();
  EXPECT_EQ(read(a.grad()), (V{5, 6}));
  EXPECT_EQ(read(b.grad()), (V{3, 4}));
}

TEST(Engine, gradients_accumulate_over_uses_and_over_calls) {
  const Tensor x = leaf({2}, {1, 2});
  x.mul(x).add(x).sum().backward();
  EXPECT_EQ(read(x.grad()), (V{3, 5}));
  x.mul(2).sum().backward();
  EXPECT_EQ(read(x.grad()), (V{5, 7}));
}

TEST(Engine, a_grad_once_given_out_is_not_shared_with_the_graph) {
  const Tensor x = leaf({2}, {1, 2}), y = leaf({2}, {1, 2});
  const Tensor g = values({2}, {7, 7});
  x.add(y).backward(g);
  x.grad().add_(1);
  EXPECT_EQ(read(y.grad()), (V{7, 7}));
  EXPECT_EQ(read(g), (V{7, 7}));
}

TEST(Engine, recorded_gradients_are_not_shared_between_leaves_either) {
  const Tensor x = leaf({2}, {1, 2}), y = leaf({2}, {1, 2}), g = values({2}, {1, 1});
  x.add(y).backward(g, false, true);
  x.mul(3).sum().backward();
  EXPECT_EQ(read(x.grad().detach()), (V{4, 4}));
  EXPECT_EQ(read(y.grad().detach()), (V{1, 1}));
  EXPECT_EQ(read(g), (V{1, 1}));
  const Tensor z = leaf({2}, {1, 2});
  z.sum().backward({}, false, true);  // an expanded gradient
  z.sum().backward();
  EXPECT_EQ(read(z.grad().detach()), (V{2, 2}));
}

TEST(Engine, a_view_made_inside_no_grad_cannot_be_written_while_gradients_are_recorded) {
  const Tensor a = leaf({2}, {1, 2}), w = leaf({}, {3});
  const Tensor x = a.mul(1);
  Tensor v;
  {
    const NoGrad quiet;
    v = x.select(0, 0);
  }
  EXPECT_FALSE(v.requires_grad());
  EXPECT_NE(thrown([&] { v.mul_(w); }).find("take the view outside NoGrad"), std::string::npos);
  EXPECT_EQ(read(x.detach()), (V{1, 2}));
  v.mul_(2);  // nothing to record
  EXPECT_EQ(read(x.detach()), (V{2, 2}));
}

TEST(Engine, a_view_beyond_its_base_is_refused_before_it_is_written) {
  const Tensor big = values({4}, {1, 2, 3, 4}), w = leaf({2}, {5, 6});
  const Tensor base = big.slice(0, 2).detach();
  EXPECT_NE(thrown([&] { base.as_strided({2}, {1}, 0).mul_(w); }).find("outside its base"), std::string::npos);
  EXPECT_EQ(read(big), (V{1, 2, 3, 4}));
}

TEST(Engine, other_data_given_to_a_saved_tensor_is_noticed) {
  const Tensor w = leaf({2}, {1, 2}), x = leaf({2}, {3, 4});
  const Tensor y = w.mul(x);
  w.set_data(values({2}, {9, 9}));
  EXPECT_NE(thrown([&] { y.sum().backward(); }).find("set_data"), std::string::npos);
  EXPECT_THROW(w.set_data({}), ValueError);
}

TEST(Engine, a_diamond_is_walked_once_for_each_node) {
  const Tensor x = leaf({1}, {2});
  Tensor y = x.mul(1);
  for (int i = 0; i < 40; ++i) y = y.add(y);  // 2^40 paths
  y.sum().backward();
  EXPECT_EQ(read(x.grad())[0], 0x1p40);
}

TEST(Engine, a_chain_of_a_hundred_thousand_nodes_neither_overflows_in_backward_nor_when_freed) {
  const Tensor x = leaf({1}, {1});
  Tensor y = x.mul(1);
  for (int i = 0; i < 100'000; ++i) y = y.add(1);
  y.sum().backward({}, true);
  EXPECT_EQ(read(x.grad())[0], 1);
}

TEST(Engine, nothing_is_recorded_inside_no_grad_and_again_inside_enable_grad) {
  const Tensor x = leaf({1}, {3});
  const NoGrad quiet;
  EXPECT_FALSE(x.mul(x).requires_grad());
  const EnableGrad loud;
  EXPECT_TRUE(x.mul(x).requires_grad());
}

TEST(Engine, inference_tensors_never_enter_a_graph) {
  const Tensor w = leaf({2}, {1, 2});
  Tensor made;
  {
    const InferenceMode inference;
    made = values({2}, {3, 4}).mul(2);
    EXPECT_TRUE(made.is_inference());
    EXPECT_FALSE(made.requires_grad());
    made.add_(1);
  }
  EXPECT_NE(thrown([&] { w.mul(made); }).find("inference tensor"), std::string::npos);
  EXPECT_NE(thrown([&] { made.add_(1); }).find("outside inference mode"), std::string::npos);
  EXPECT_NE(thrown([&] { made.requires_grad_(); }).find("inference"), std::string::npos);
  EXPECT_EQ(read(w.add(made).detach()), (V{8, 11}));  // add keeps nothing, so it may
  w.mul(made.clone()).sum().backward();
  EXPECT_EQ(read(w.grad()), (V{7, 9}));
}

TEST(Engine, a_saved_tensor_overwritten_in_place_is_refused_and_the_writer_named) {
  const Tensor a = leaf({2}, {1, 2});
  const Tensor b = a.mul(3), c = b.mul(b);
  b.add_(1);
  const std::string text = thrown([&] { c.sum().backward(); });
  EXPECT_NE(text.find("mul backward"), std::string::npos) << text;
  EXPECT_NE(text.find("last written by add"), std::string::npos) << text;
}

TEST(Engine, a_write_through_a_view_is_noticed_too) {
  const Tensor a = leaf({2, 2}, {1, 2, 3, 4});
  const Tensor b = a.mul(3), c = b.exp().mul(b);
  b.select(0, 1).zero_();
  EXPECT_NE(thrown([&] { c.sum().backward(); }).find("overwritten in place"), std::string::npos);
}

TEST(Engine, leaves_and_their_views_refuse_writes_outside_no_grad) {
  const Tensor x = leaf({2}, {1, 2});
  EXPECT_NE(thrown([&] { x.add_(1); }).find("a leaf that requires a gradient is written in place"), std::string::npos);
  EXPECT_NE(thrown([&] { x.select(0, 0).add_(1); }).find("view of a leaf"), std::string::npos);
  EXPECT_EQ(read(x.detach()), (V{1, 2}));
  const NoGrad quiet;
  x.add_(1);
  EXPECT_EQ(read(x.detach()), (V{2, 3}));
}

TEST(Engine, writing_in_place_rebinds_the_history) {
  const Tensor x = leaf({2}, {3, 4});
  const Tensor y = x.mul(2);
  y.mul_(x);  // 2 x^2
  y.sum().backward();
  EXPECT_EQ(read(x.grad()), (V{12, 16}));
}

TEST(Engine, writing_through_a_view_reaches_the_base_and_its_other_views) {
  const Tensor x = leaf({2, 2}, {1, 2, 3, 4}), w = leaf({2}, {10, 20});
  const Tensor y = x.mul(1), top = y.select(0, 0), column = y.select(1, 1);
  top.mul_(w);
  EXPECT_EQ(read(y.detach()), (V{10, 40, 3, 4}));
  y.mul(y).sum().backward({}, true);
  EXPECT_EQ(read(x.grad()), (V{2 * 10 * 10, 2 * 40 * 20, 6, 8}));
  EXPECT_EQ(read(w.grad()), (V{2 * 10 * 1, 2 * 40 * 2}));
  x.set_grad({});
  w.set_grad({});
  column.sum().backward();  // a view taken before the write sees it
  EXPECT_EQ(read(x.grad()), (V{0, 20, 0, 1}));
  EXPECT_EQ(read(w.grad()), (V{0, 2}));
}

TEST(Engine, a_plain_tensor_becomes_part_of_the_graph_when_a_view_of_it_is_written) {
  const Tensor w = leaf({2}, {5, 6});
  const Tensor buffer = values({2, 2}, {1, 1, 1, 1});
  buffer.select(0, 1).copy_(w);
  EXPECT_TRUE(buffer.requires_grad());
  buffer.mul(buffer).sum().backward();
  EXPECT_EQ(read(w.grad()), (V{10, 12}));
}

TEST(Engine, in_place_history_agrees_with_numerical_derivatives) {
  const auto f = [](const std::vector<Tensor>& in) {
    const Tensor y = in[0].mul(1);
    y.select(0, 1).mul_(in[1]).add_(in[1]);
    const Tensor t = y.transpose(0, 1);
    t.select(0, 0).mul_(y.select(0, 1).select(0, 2).clone());
    return y.mul(y);
  };
  const std::vector<Tensor> inputs{leaf({2, 3}, {.1, .2, .3, .4, .5, .6}), leaf({3}, {.7, .8, .9})};
  EXPECT_TRUE(test::gradcheck(f, inputs));
  EXPECT_TRUE(test::gradgradcheck(f, inputs));
}

TEST(Engine, a_second_backward_needs_retain_graph) {
  const Tensor x = leaf({1}, {3});
  const Tensor y = x.mul(x);
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(read(x.grad()), (V{12}));
  EXPECT_NE(thrown([&] { y.backward(); }).find("retain_graph"), std::string::npos);
}

TEST(Engine, create_graph_differentiates_again) {
  const Tensor x = leaf({1}, {2});
  const Tensor y = x.mul(x).mul(x);
  const Tensor first = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(read(first.detach()), (V{12}));
  const Tensor second = autograd::grad({first}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(read(second.detach()), (V{12}));
  second.backward();
  EXPECT_EQ(read(x.grad()), (V{6}));
}

TEST(Engine, saved_outputs_carry_their_history_into_second_derivatives) {
  const Tensor x = leaf({1}, {0.5});
  const Tensor y = x.exp();
  const Tensor first = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
  EXPECT_NEAR(read(autograd::grad({first}, {x})[0])[0], std::exp(0.5), 1e-12);
}

TEST(Engine, grad_reaches_inner_tensors_and_touches_no_leaf) {
  const Tensor x = leaf({2}, {1, 2});
  const Tensor h = x.mul(3), y = h.mul(h);
  const auto g = autograd::grad({y.sum()}, {h, x});
  EXPECT_EQ(read(g[0]), (V{6, 12}));
  EXPECT_EQ(read(g[1]), (V{18, 36}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, an_unused_input_is_an_error_unless_allowed) {
  const Tensor x = leaf({1}, {1}), unused = leaf({1}, {1});
  EXPECT_NE(thrown([&] { autograd::grad({x.mul(2)}, {unused}); }).find("allow_unused"), std::string::npos);
  EXPECT_FALSE(autograd::grad({x.mul(2)}, {unused}, {}, {.allow_unused = true})[0].defined());
}

TEST(Engine, hooks_see_and_replace_gradients_and_can_be_removed) {
  const Tensor x = leaf({2}, {1, 2});
  const Tensor h = x.mul(3);
  V seen;
  h.register_hook([&](const Tensor& g) {
    seen = read(g);
    return g.mul(10);
  });
  const int64_t on_leaf = x.register_hook([](const Tensor& g) { return g.add(1); });
  h.sum().backward({}, true);
  EXPECT_EQ(seen, (V{1, 1}));
  EXPECT_EQ(read(x.grad()), (V{31, 31}));
  x.remove_hook(on_leaf);
  x.set_grad({});
  h.sum().backward();
  EXPECT_EQ(read(x.grad()), (V{30, 30}));
  EXPECT_THROW(x.remove_hook(on_leaf), ValueError);
}

TEST(Engine, retain_grad_keeps_the_gradient_of_an_inner_tensor) {
  const Tensor x = leaf({2}, {1, 2});
  const Tensor h = x.mul(3);
  h.retain_grad();
  h.mul(h).sum().backward();
  EXPECT_EQ(read(h.grad()), (V{6, 12}));
}

TEST(Engine, detach_cuts_and_shares_memory) {
  const Tensor x = leaf({2}, {1, 2});
  const Tensor y = x.mul(2), d = y.detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_TRUE(d.is_leaf());
  EXPECT_EQ(d.data_ptr(), y.data_ptr());
}

TEST(Engine, the_graph_outlives_its_leaves_and_leaves_outlive_their_graph) {
  Tensor y;
  {
    const Tensor x = leaf({1}, {1});
    y = x.mul(2);
  }
  y.backward();
  const Tensor x = leaf({1}, {1});
  { const Tensor z = x.mul(2); }
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, wrong_roots_and_gradients_are_refused_by_name) {
  const Tensor x = leaf({2}, {1, 2});
  EXPECT_NE(thrown([&] { x.mul(2).backward(); }).find("more than one element"), std::string::npos);
  EXPECT_NE(thrown([&] { values({1}, {1}).backward(); }).find("requires_grad_"), std::string::npos);
  EXPECT_THROW(x.mul(2).backward(values({3}, {1, 1, 1})), ShapeError);
  EXPECT_THROW(empty({1}, {kI64}).requires_grad_(), DTypeError);
  EXPECT_NE(thrown([&] { x.mul(2).requires_grad_(false); }).find("made by mul"), std::string::npos);
  EXPECT_NE(thrown([&] { x.set_data(values({1}, {1})), x.mul(2).set_data(x); }).find("set_data"), std::string::npos);
}

TEST(Engine, a_failed_operator_leaves_no_trace) {
  const Tensor x = leaf({2}, {1, 2}), y = leaf({3}, {1, 2, 3});
  EXPECT_THROW(x.add(y), ShapeError);
  EXPECT_TRUE(grad_enabled());
  x.mul(2).sum().backward();
  EXPECT_EQ(read(x.grad()), (V{2, 2}));
}

TEST(Engine, a_view_written_in_place_leads_to_its_leaf_whoever_asks) {
  const Tensor x = leaf({2, 2}, {1, 2, 3, 4});
  const Tensor a = x.mul(2), v = a[0];
  v.mul_(3);
  EXPECT_EQ(read(autograd::grad({v.sum()}, {x}, {}, {.retain_graph = true})[0]), (V{6, 6, 0, 0}));
  v.sum().backward();
  EXPECT_EQ(read(x.grad()), (V{6, 6, 0, 0}));
}

TEST(Engine, the_gradient_of_a_written_view_arrives_whole) {
  const Tensor x = leaf({2}, {0.1, 0.2});
  const Tensor a = x.mul(2), v = a[0];
  v.mul_(3);
  const Tensor s = v.sin(), c = v.cos();
  v.retain_grad();
  int calls = 0;
  v.register_hook([&](const Tensor&) { return ++calls, Tensor(); });
  (s + c).sum().backward();
  const double at = 0.6, expected = std::cos(at) - std::sin(at);
  EXPECT_NEAR(read(v.grad())[0], expected, 1e-15);
  EXPECT_NEAR(read(x.grad())[0], 6 * expected, 1e-15);
  EXPECT_EQ(calls, 1);
}

TEST(Engine, a_retained_gradient_follows_its_tensor_and_a_hook_stays) {
  const Tensor x = leaf({1}, {0.5});
  const Tensor y = x.mul(2);
  V seen;
  y.retain_grad();
  y.register_hook([&](const Tensor& g) { return seen = read(g), Tensor(); });
  y.mul_(3);
  y.sin().sum().backward({}, true);
  EXPECT_NEAR(read(y.grad())[0], std::cos(3.0), 1e-15);  // of the value after the write
  EXPECT_NEAR(seen[0], 3 * std::cos(3.0), 1e-15);        // of the value when the hook was added
  y.sin().sum().backward();
  EXPECT_NEAR(read(y.grad())[0], 2 * std::cos(3.0), 1e-15);  // gradients accumulate here too
}

TEST(Engine, a_hook_can_be_removed_after_its_tensor_was_written) {
  const Tensor x = leaf({1}, {1});
  const Tensor y = x.mul(2);
  const int64_t handle = y.register_hook([](const Tensor& g) { return g.mul(100); });
  y.mul_(3);
  y.remove_hook(handle);
  y.sum().backward();
  EXPECT_EQ(read(x.grad()), (V{6}));
}

TEST(Engine, a_retained_gradient_is_what_later_hooks_make_of_it) {
  const Tensor x = leaf({1}, {1});
  const Tensor y = x.mul(2);
  y.retain_grad();
  y.register_hook([](const Tensor& g) { return g.mul(10); });
  y.sum().backward();
  EXPECT_EQ(read(y.grad()), (V{10}));
}

TEST(Engine, a_hook_may_not_return_another_kind_of_tensor) {
  const Tensor x = leaf({2}, {1, 2});
  const auto refused = [&](const Tensor& replacement) {
    const Tensor y = x.mul(1);
    y.register_hook([&](const Tensor&) { return replacement; });
    return thrown([&] { y.sum().backward(); }).find("register_hook") != std::string::npos;
  };
  EXPECT_TRUE(refused(values({3}, {1, 1, 1})));
  EXPECT_TRUE(refused(ones({2}, {kF32})));
  EXPECT_FALSE(refused(values({2}, {1, 1})));
}

TEST(Engine, a_write_inside_no_grad_leaves_the_hooks_of_views) {
  const Tensor x = leaf({2}, {1, 2});
  const Tensor a = x.mul(2), v = a[0];
  int calls = 0;
  v.register_hook([&](const Tensor&) { return ++calls, Tensor(); });
  {
    const NoGrad quiet;
    a.mul_(5);
  }
  v.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(read(x.grad()), (V{2, 0}));
}

TEST(Engine, a_tensor_may_be_written_with_itself_and_with_its_neighbours) {
  const Tensor x = leaf({2}, {3, 4});
  const Tensor y = x.mul(2);
  y.mul_(y);  // 4 x^2
  y.sum().backward();
  EXPECT_EQ(read(x.grad()), (V{24, 32}));
  x.set_grad({});
  const Tensor a = x.mul(2);
  a[0].mul_(a[1]);  // 4 x0 x1, 2 x1
  a.sum().backward();
  EXPECT_EQ(read(x.grad()), (V{16, 14}));
}

TEST(Engine, graphs_of_tensors_written_in_place_are_freed_without_a_backward) {
  const Device device = default_device();
  const Tensor x = leaf({4}, {1, 2, 3, 4});
  const auto make = [&] {
    const Tensor y = x.mul(2);
    y.mul_(y);
    const Tensor s = y.sin();
    y.mul_(s);  // refers to the sine, which saved y
    const Tensor a = x.mul(3), v = a[0], w = a[1];
    const Tensor t = w.cos();
    v.mul_(w).mul_(t);
    const Tensor buffer = zeros({4}, {kF64});
    buffer.add_(buffer.mul(x));
  };
  make();
  const int64_t before = memory::stats(device).live_blocks;
  for (int i = 0; i < 10; ++i) make();
  EXPECT_EQ(memory::stats(device).live_blocks, before);
}

TEST(Engine, threads_that_walk_shared_nodes_get_gradients_or_an_error) {
  for (int round = 0; round < 50; ++round) {
    const Tensor x = leaf({64}, V(64, 0.5));
    Tensor shared = x.mul(1);
    for (int i = 0; i < 20; ++i) shared = shared.tanh().mul(shared.sin());
    shared.slice(0, 0, 8).mul_(shared.slice(0, 8, 16));
    std::atomic<int> done{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, loss = shared.mul(t + 1).sum()] {
        try {
          loss.backward();
          ++done;
        } catch (const GradError& e) {
          EXPECT_NE(std::string_view(e.what()).find("the graph was freed"), std::string_view::npos) << e.what();
          ++refused;
        }
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(done + refused, 4);
    EXPECT_GE(done, 1);
  }
}

TEST(Engine, threads_that_keep_the_graph_all_get_their_gradients) {
  const Tensor x = leaf({64}, V(64, 0.5));
  Tensor shared = x.mul(1);
  for (int i = 0; i < 20; ++i) shared = shared.tanh().add(shared.sin());
  const V one = read(autograd::grad({shared.sum()}, {x}, {}, {.retain_graph = true})[0]);
  std::vector<std::thread> threads;
  std::vector<V> got(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        got[static_cast<size_t>(t)] = read(autograd::grad({shared.sum()}, {x}, {}, {.retain_graph = true})[0]);
    });
  for (auto& t : threads) t.join();
  for (const V& g : got) EXPECT_EQ(g, one);
}

TEST(Engine, several_threads_share_leaves) {
  const Tensor w = leaf({4}, {1, 2, 3, 4});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) w.mul(w).sum().backward();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(read(w.grad()), (V{400, 800, 1200, 1600}));
}

}  // namespace
}  // namespace lorry
