// Tensors without elements, forwards and backwards: a view of nothing may begin behind the end of its memory.

#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/gradcheck.h"

namespace lorry::test {
namespace {

void expect_gradient_of_zeros(const Tensor& x) {
  ASSERT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(elements(x.grad()), std::vector<double>(static_cast<size_t>(x.numel()), 0.0));
}

TEST(EmptyRules, views_of_nothing_behind_the_end_pass_gradients_on) {
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> views[] = {
      {"a slice at the end", [](const Tensor& x) { return x.slice(0, 3, 3); }},
      {"a slice of a slice at the end", [](const Tensor& x) { return x.slice(0, 3, 3).slice(1, 4, 4); }},
      {"narrow of narrow", [](const Tensor& x) { return x.narrow(1, 4, 0).narrow(0, 3, 0); }},
      {"slices with a step", [](const Tensor& x) { return x.slice(0, 3, 3, 2).slice(1, 4, 4, 5); }},
      {"a transposed slice", [](const Tensor& x) { return x.slice(0, 3, 3).t().slice(0, 4, 4); }},
      {"as_strided of a slice",
       [](const Tensor& x) {
         return x.slice(0, 3, 3).slice(1, 4, 4).as_strided({0, 2}, {1, 1});
       }},
      {"as_strided far away",
       [](const Tensor& x) {
         return x.as_strided({2, 0}, {1, 1}, int64_t{1} << 60);
       }},
      {"a diagonal of a slice", [](const Tensor& x) { return x.slice(1, 4, 4).diagonal(); }},
      {"an unfolded slice", [](const Tensor& x) { return x.slice(0, 3, 3).unfold(1, 2, 2); }},
      {"a column of a slice", [](const Tensor& x) { return x.slice(0, 3, 3).select(1, 3); }},
      {"an expanded slice",
       [](const Tensor& x) {
         return x.slice(0, 3, 3).unsqueeze(0).expand({5, 0, 4});
       }},
      {"a reshaped slice",
       [](const Tensor& x) {
         return x.slice(1, 4, 4).reshape({0, 7});
       }},
  };
  for (const auto& [what, view] : views) {
    SCOPED_TRACE(what);
    const Tensor x = sample({3, 4}, kF64, 1).requires_grad_();
    const Tensor y = view(x * 2);
    EXPECT_EQ(y.numel(), 0);
    ASSERT_NO_THROW(y.sum().backward());
    expect_gradient_of_zeros(x);
    const Tensor again = sample({3, 4}, kF64, 1).requires_grad_();
    ASSERT_NO_THROW(
        autograd::grad({view(again * again).square().sum()}, {again}, {}, {.create_graph = true})[0].sum().backward());
    expect_gradient_of_zeros(again);
    const Tensor base = again * 3;
    ASSERT_NO_THROW(view(base).mul_(2));
    EXPECT_NO_THROW(base.sum().backward());
  }
}

TEST(EmptyRules, as_strided_refuses_offsets_below_zero_also_of_nothing) {
  EXPECT_THROW(ones({3}).as_strided({0}, {1}, -1), ShapeError);
  EXPECT_THROW(ones({3}).as_strided({1}, {1}, 3), ShapeError);
}

TEST(EmptyRules, products_without_elements_pass_gradients_on) {
  struct Sizes {
    Dims x, weight;
  };
  for (const auto& [x_sizes, weight_sizes] : {Sizes{{0, 4}, {3, 4}},
                                              {{2, 0, 4}, {3, 4}},
                                              {{0, 2, 4}, {3, 4}},
                                              {{2, 0}, {3, 0}},
                                              {{0}, {3, 0}},
                                              {{2, 4}, {0, 4}},
                                              {{4}, {0, 4}},
                                              {{0, 0}, {3, 0}},
                                              {{2, 3, 0}, {5, 0}},
                                              {{2, 3, 4}, {0, 4}}}) {
    SCOPED_TRACE(to_string(x_sizes) + " by " + to_string(weight_sizes));
    const Tensor x = ones(x_sizes, {kF64}).requires_grad_(), weight = ones(weight_sizes, {kF64}).requires_grad_();
    const Tensor bias = ones({weight_sizes[0]}, {kF64}).requires_grad_();
    for (const bool again : {false, true}) {
      const Tensor y = again ? matmul(x, weight.t()).add(bias) : linear(x, weight, bias);
      ASSERT_NO_THROW(y.sum().backward());
      for (const Tensor& leaf : {x, weight, bias}) EXPECT_EQ(leaf.grad().sizes(), leaf.sizes());
    }
    EXPECT_EQ(element(linear(x, weight, bias).sum(), 0),
              static_cast<double>(linear(x, weight, bias).numel()) * (x_sizes.back() > 0 ? 5 : 1));
    for (int64_t i = 0; i < weight.numel(); ++i)
      EXPECT_EQ(element(weight.grad(), i), 2.0 * static_cast<double>(x.numel() / x_sizes.back()));
    ASSERT_NO_THROW(
        autograd::grad({linear(x * x, weight * weight, bias).square().sum()}, {x}, {}, {.create_graph = true})[0]
            .sum()
            .backward());
  }
}

TEST(EmptyRules, running_products_and_sums_in_place_pass_gradients_on) {
  for (const Dims& sizes : {Dims{0}, Dims{0, 3}, Dims{3, 0}, Dims{2, 3}, Dims{1}, Dims{}}) {
    SCOPED_TRACE(to_string(sizes));
    for (const int64_t dim : {0, -1}) {
      const Tensor x = sample(sizes, kF64, 7).requires_grad_();
      EXPECT_TRUE(gradcheck([&](auto& v) { return (v[0] * 2).cumprod_(dim).square(); }, {x}));
      EXPECT_TRUE(gradcheck([&](auto& v) { return (v[0] * 2).cumsum_(dim).square(); }, {x}));
      EXPECT_TRUE(gradgradcheck([&](auto& v) { return (v[0] * 2).cumprod_(dim); }, {x}));
      const Tensor whole = ones(sizes, {kI32}).mul_(2);
      EXPECT_EQ(whole.cumprod_(dim).dtype(), kI32);
    }
  }
}

}  // namespace
}  // namespace lorry::test
