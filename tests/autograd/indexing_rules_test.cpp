#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/gradcheck.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::expect_elements;
using test::Shapes;

using Function = std::function<Tensor(const Tensor& x, const Tensor& y)>;

/// Checks f and its gradients; the result is squared, so that second derivatives do not vanish.
void expect_gradients(const std::vector<std::pair<const char*, Function>>& cases, const Tensor& x, const Tensor& y) {
  for (const auto& [name, f] : cases) {
    SCOPED_TRACE(name);
    const auto squared = [&f = f](const std::vector<Tensor>& in) {
      const Tensor z = f(in[0], in[1]);
      return z.mul(z);
    };
    EXPECT_TRUE(test::gradcheck(squared, {x, y}));
    EXPECT_TRUE(test::gradgradcheck(squared, {x, y}));
  }
}

class IndexingAtPositions : public testing::Test {
 protected:
  Shapes shapes{9};
  const Tensor x = shapes.tensor({3, 4}, kF64, false).mul(0.1).requires_grad_(),
               y = shapes.tensor({2, 4}, kF64, false).mul(0.1).requires_grad_();
  const Tensor rows = tensor({2, 0}), again = tensor({1, 1}), places = tensor({{0, 1, 2, 0}, {2, 1, 1, 0}}),
               mask = tensor({true, false, true});
};

TEST_F(IndexingAtPositions, reading_passes_the_numerical_check_twice) {
  expect_gradients(
      {
          {"gather", [&](const Tensor& a, const Tensor&) { return a.gather(0, places); }},
          {"gather fewer columns", [&](const Tensor& a, const Tensor&) { return a.gather(0, places.narrow(1, 0, 2)); }},
          {"take_along_dim",
           [&](const Tensor& a, const Tensor&) {
             return a.take_along_dim(tensor({{-1}, {0}, {2}}), 1);
           }},
          {"index_select",
           [&](const Tensor& a, const Tensor&) {
             return a.index_select(1, tensor({3, 0, 3}));
           }},
          {"index",
           [&](const Tensor& a, const Tensor&) {
             return a.index({places, tensor({0, 1, 2, 3})});
           }},
          {"index between slices",
           [&](const Tensor& a, const Tensor&) {
             return a.reshape({3, 2, 2}).index({Slice(), again, Slice(0, 1)});
           }},
          {"index by a mask",
           [&](const Tensor& a, const Tensor&) {
             return a.index({mask, Slice(1)});
           }},
          {"masked_select",
           [&](const Tensor& a, const Tensor&) {
             return a.masked_select(tensor({true, false, true, true}));
           }},
      },
      x, y);
}

TEST_F(IndexingAtPositions, writing_passes_the_numerical_check_twice) {
  expect_gradients(
      {
          {"scatter",
           [&](const Tensor& a, const Tensor& b) {
             return a.scatter(0, tensor({{0, 1, 2, 0}, {2, 0, 1, 1}}), b);
           }},
          {"scatter from a larger source",
           [&](const Tensor& a, const Tensor& b) {
             return a.scatter(0, tensor({{0, 1}}), b);
           }},
          {"scatter a number",
           [&](const Tensor& a, const Tensor&) {
             return a.scatter(1, tensor({{0}, {1}}), 2.0);
           }},
          {"scatter_add", [&](const Tensor& a, const Tensor& b) { return a.scatter_add(0, places, b); }},
          {"index_add", [&](const Tensor& a, const Tensor& b) { return a.index_add(0, again, b, 2.5); }},
          {"index_copy", [&](const Tensor& a, const Tensor& b) { return a.index_copy(0, rows, b); }},
          {"index_fill",
           [&](const Tensor& a, const Tensor&) {
             return a.index_fill(1, tensor({0, -1}), 0.5);
           }},
          {"index_put", [&](const Tensor& a, const Tensor& b) { return index_put(a, {rows}, b); }},
          {"index_put accumulates", [&](const Tensor& a, const Tensor& b) { return index_put(a, {again}, b, true); }},
          {"index_put broadcasts", [&](const Tensor& a, const Tensor& b) { return index_put(a, {rows}, b[0]); }},
          {"writing through a view",
           [&](const Tensor& a, const Tensor& b) {
             const Tensor c = a.mul(2);
             c.index_put_({Slice(0, 2), 1}, b.index({Slice(), 0}));
             c.index_put_({rows, Slice(2)}, b.index({Slice(), Slice(0, 2)}));
             return c;
           }},
          {"index_put_ of the masked",
           [&](const Tensor& a, const Tensor& b) { return a.clone().index_put_({mask}, b.mul(3), true); }},
      },
      x, y);
}

TEST(IndexingGradients, joining_and_rearranging_pass_the_numerical_check_twice) {
  Shapes shapes(10);
  const Tensor x = shapes.tensor({2, 3}, kF64, false).mul(0.1).requires_grad_(),
               y = shapes.tensor({2, 3}, kF64, false).mul(0.1).requires_grad_();
  expect_gradients(
      {
          {"cat",
           [](const Tensor& a, const Tensor& b) {
             return cat({a, b, a.narrow(1, 0, 1).expand({2, 3})}, 0);
           }},
          {"cat along the last, with an empty vector",
           [](const Tensor& a, const Tensor& b) {
             return cat({empty({0}, {kF64}), b, a}, -1);
           }},
          {"stack",
           [](const Tensor& a, const Tensor& b) {
             return stack({a, b}, 1);
           }},
          {"flip",
           [](const Tensor& a, const Tensor&) {
             return a.flip({0, -1});
           }},
          {"roll",
           [](const Tensor& a, const Tensor&) {
             return a.roll({1, -2}, {0, 1});
           }},
          {"roll flattened", [](const Tensor& a, const Tensor&) { return a.roll(2); }},
          {"repeat",
           [](const Tensor& a, const Tensor&) {
             return a.repeat({2, 1, 2});
           }},
          {"tile", [](const Tensor& a, const Tensor&) { return a.tile({2}); }},
          {"repeat_interleave", [](const Tensor& a, const Tensor&) { return a.repeat_interleave(2, 1); }},
          {"repeat_interleave by counts",
           [](const Tensor& a, const Tensor&) {
             return repeat_interleave(a, tensor({2, 0, 1}), 1);
           }},
          {"diff", [](const Tensor& a, const Tensor&) { return diff(a); }},
          {"meshgrid",
           [](const Tensor& a, const Tensor& b) {
             return meshgrid({a.ravel(), b.ravel()})[1];
           }},
      },
      x, y);
}

TEST(IndexingGradients, gradients_of_promoted_inputs_have_their_own_dtype) {
  const Tensor a = ones({2}, {kF32}).requires_grad_(), b = ones({2}, {kF64}).requires_grad_();
  cat({a, b}).mul(tensor({1, 2, 3, 4})).sum().backward();
  EXPECT_EQ(a.grad().dtype(), kF32);
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{1, 2}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{3, 4}));
}

TEST(IndexingGradients, random_numbers_cut_the_history_of_what_they_overwrite) {
  const Tensor x = ones({3}).requires_grad_(), y = x.mul(2);
  y.narrow(0, 0, 2).uniform_();
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 2}));
  EXPECT_THROW(x.normal_(), GradError);
  EXPECT_FALSE(x.bernoulli().requires_grad());
  EXPECT_FALSE(x.nonzero().requires_grad());
}

TEST(IndexingGradients, a_failed_write_leaves_value_and_history_alone) {
  if (!default_device().is_cpu()) GTEST_SKIP() << "a GPU finds the wrong index after the write was recorded";
  const Tensor x = ones({3}).requires_grad_(), y = x.mul(2);
  EXPECT_THROW(y.index_put_({tensor({5})}, 1.0), IndexError);
  EXPECT_EQ(y.grad_fn(), "mul");
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2, 2}));
}

TEST(IndexingGradients, assignment_through_a_view_carries_gradients) {
  const Tensor x = randn({3, 2}, {kF64}).requires_grad_(), y = randn({2}, {kF64}).requires_grad_();
  EXPECT_TRUE(test::gradcheck(
      [](const std::vector<Tensor>& in) {
        const Tensor z = in[0] * 2;
        z[1] = in[1] * in[1];
        z.select(1, 0) = 3;
        return z * z;
      },
      {x, y}));
  EXPECT_THROW(x[0] = y, GradError);  // a leaf is not overwritten while gradients are recorded
}

}  // namespace
}  // namespace lorry
