// Graphs whose tensors get other memory: several at once, and in every kind of node.

#include <gtest/gtest.h>

#include "lorry/lorry.h"
#include "lorry/replay/graph.h"
#include "tests/support/warnings.h"

namespace lorry::test {
namespace {

using Pairs = std::vector<std::pair<Tensor, Tensor>>;

/// A function of weights in which kernels, library calls, copies and fills use them.
Tensor everywhere(const Tensor& x, const Tensor& a, const Tensor& b) {
  const Tensor copy = empty(a.sizes());
  copy.copy_(a);
  copy.narrow(0, 0, 1).zero_();
  return matmul(x, a) + linear(x, b) * copy.sum() - (a.select(0, 2) * b.select(1, 1)).exp() + b.narrow(0, 1, 3).mean();
}

struct Moves : testing::Test {
  void SetUp() override { manual_seed(11); }
  const NoGrad quiet;
};

TEST_F(Moves, two_tensors_change_places_in_one_call) {
  const Tensor x = randn({6, 8}), a = randn({8, 8}), b = randn({8, 8});
  replay::Graph graph([&] { return std::vector{everywhere(x, a, b)}; });
  for (int swap = 0; swap < 3; ++swap) {
    EXPECT_GE(graph.rebind({{a, b}, {b, a}}), 6);
    graph.replay();
    const bool swapped = swap % 2 == 0;
    EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, swapped ? b : a, swapped ? a : b))) << swap;
  }
}

TEST_F(Moves, memory_may_move_into_a_part_of_itself) {
  const Tensor x = randn({6, 16}), all = randn({24, 16}), b = randn({16, 16});
  const Tensor first = all.narrow(0, 0, 16), second = all.narrow(0, 4, 16);
  replay::Graph graph([&] { return std::vector{everywhere(x, first, b)}; });
  EXPECT_GE(graph.rebind(first, second), 3);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, second, b)));
  graph.rebind({{second, first}, {b, second}});  // b's users go where a's were
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, first, second)));
}

/// Libraries pass addresses to their kernels in several forms: one parameter each, all in one piece, in descriptors of
/// the copy engine.
TEST_F(Moves, of_the_operands_of_products) {
  const bool has_libraries = default_device().is_cuda();
  for (const DType dtype : {kF32, kF64, kF16, kBF16})
    for (const int64_t rows : has_libraries ? std::vector<int64_t>{1, 8, 64, 250, 1024} : std::vector<int64_t>{1, 8})
      for (const int64_t width : {64, 512}) {
        const Options as{dtype};
        const Tensor x = randn({rows, width}, as), other_x = randn({rows, width}, as), bias = randn({512}, as);
        const Tensor w = randn({512, width}, as), other_w = randn({512, width}, as), other_bias = randn({512}, as);
        const auto f = [](const Tensor& in, const Tensor& weight, const Tensor& b) {
          return std::vector{linear(in, weight, b), matmul(in, weight.t()), gelu(linear(in, weight, b), "tanh")};
        };
        replay::Graph graph([&] { return f(x, w, bias); });
        EXPECT_GE(graph.rebind({{x, other_x}, {w, other_w}, {bias, other_bias}}), 3);
        graph.replay();
        const std::vector<Tensor> expected = f(other_x, other_w, other_bias);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(graph.outputs()[i].equal(expected[i])) << name(dtype) << " " << rows << " " << width << " " << i;
      }
}

TEST_F(Moves, there_and_back) {
  const Tensor x = randn({6, 8}), a = randn({8, 8}), b = randn({8, 8}), other = randn({8, 8});
  replay::Graph graph([&] { return std::vector{everywhere(x, a, b)}; });
  const int64_t there = graph.rebind(a, other);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, other, b)));
  EXPECT_EQ(graph.rebind(a, other), 0) << "nothing is left there";
  EXPECT_EQ(graph.rebind(other, a), there);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, a, b)));
  EXPECT_EQ(graph.stats().rebound, 2 * there);
}

TEST_F(Moves, of_one_tensor_under_two_names_count_once) {
  const Tensor x = randn({6, 8}), a = randn({8, 8}), b = randn({8, 8}), other = randn({8, 8}), third = randn({8, 8});
  replay::Graph graph([&] { return std::vector{everywhere(x, a, b)}; });
  const int64_t once = graph.rebind(a, other);
  EXPECT_EQ(graph.rebind({{other, third}, {other, third}, {other, a}}), once);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, third, b)));
  EXPECT_EQ(graph.rebind({{third, third}}), 0);
  EXPECT_EQ(graph.rebind(Pairs{}), 0);
}

TEST_F(Moves, leave_numbers_alone_that_look_like_addresses) {
  const Tensor x = zeros({64}, {kI64}), a = randn({64}), b = randn({64});
  const auto number = static_cast<int64_t>(reinterpret_cast<intptr_t>(a.data_ptr()));
  replay::Graph graph([&] { return std::vector{x + number, a * 2}; });
  EXPECT_EQ(graph.rebind(a, b), 1);
  graph.replay();
  EXPECT_EQ(graph.outputs()[0].to_vector<int64_t>(), std::vector<int64_t>(64, number));
  EXPECT_TRUE(graph.outputs()[1].equal(b * 2));
}

TEST_F(Moves, of_a_part_leave_the_rest_where_it_is) {
  const Tensor x = randn({6, 8}), all = randn({16, 8}), other = randn({8, 8});
  const Tensor a = all.narrow(0, 0, 8), b = all.narrow(0, 8, 8);
  replay::Graph graph([&] { return std::vector{everywhere(x, a, b)}; });
  graph.rebind(b, other);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, a, other)));
}

TEST_F(Moves, to_memory_of_another_alignment_need_another_capture) {
  const Tensor x = randn({6, 8}), b = randn({8, 8}), odd = randn({65}).narrow(0, 1, 64).view({8, 8});
  nn::Linear linear(8, 8);
  const auto f = [&] { return everywhere(x, linear.weight, b); };
  replay::Graph graph([&] { return std::vector{f()}; }, {.follow = linear.named_parameters()});
  EXPECT_THROW(graph.rebind(linear.weight, odd), ValueError);
  Warnings warnings;
  linear.weight.set_data(odd);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(f()));
  EXPECT_EQ(graph.stats().rebuilt, 1);
  EXPECT_EQ(warnings.texts.size(), 1u);
}

TEST_F(Moves, of_which_one_is_refused_do_not_begin) {
  const Tensor x = randn({6, 8}), a = randn({8, 8}), b = randn({8, 8}), other = randn({8, 8});
  replay::Graph graph([&] { return std::vector{everywhere(x, a, b)}; });
  EXPECT_THROW(graph.rebind({{a, other}, {b, randn({8, 7})}}), ShapeError);
  EXPECT_THROW(graph.rebind({{a, other}, {b, Tensor()}}), ValueError);
  graph.replay();
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, a, b)));
  EXPECT_EQ(graph.stats().rebound, 0);
}

TEST_F(Moves, of_followed_tensors_that_change_places_are_made_at_once) {
  const Tensor x = randn({6, 8});
  nn::Linear first(8, 8), second(8, 8);
  const auto f = [&] { return everywhere(x, first.weight, second.weight) + first(x); };
  replay::Graph graph([&] { return std::vector{f()}; },
                      {.follow = {{"first", first.weight}, {"second", second.weight}, {"bias", first.bias}}});
  for (int swap = 0; swap < 3; ++swap) {
    const Tensor memory = first.weight.detach();
    first.weight.set_data(second.weight.detach());
    second.weight.set_data(memory);
    graph.replay();
    EXPECT_TRUE(graph.outputs()[0].equal(f())) << swap;
  }
  EXPECT_EQ(graph.stats().rebuilt, 0);
}

TEST_F(Moves, take_the_leases_along) {
  const Tensor x = randn({6, 8});
  std::optional<Tensor> a = randn({8, 8}), b = randn({8, 8}), c = randn({8, 8});
  replay::Graph graph([&] { return std::vector{everywhere(x, *a, *b)}; });
  const int64_t leases = graph.stats().leases;
  graph.rebind({{*a, *b}, {*b, *c}});
  EXPECT_EQ(graph.stats().leases, leases);
  a.reset();
  EXPECT_NO_THROW(graph.replay()) << "memory that is used no more may be released";
  EXPECT_TRUE(graph.outputs()[0].equal(everywhere(x, *b, *c)));
  b.reset();
  EXPECT_THROW(graph.replay(), CaptureError);
}

}  // namespace
}  // namespace lorry::test
