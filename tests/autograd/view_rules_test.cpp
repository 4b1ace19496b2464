#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/gradcheck.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;
using test::expect_elements;
using test::Shapes;

TEST(ViewGradients, gradients_pass_the_numerical_check_twice) {
  Shapes shapes(7);
  const Tensor x = shapes.tensor({3, 4, 2}, kF64, false).requires_grad_();
  using Function = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<const char*, Function>> cases = {
      {"view",
       [](const Tensor& t) {
         return t.contiguous().view({4, 6});
       }},
      {"reshape",
       [](const Tensor& t) {
         return t.reshape({6, -1});
       }},
      {"permute",
       [](const Tensor& t) {
         return t.permute({-1, 0, 1});
       }},
      {"transpose", [](const Tensor& t) { return t.transpose(0, -1); }},
      {"select", [](const Tensor& t) { return t.select(1, -2); }},
      {"slice", [](const Tensor& t) { return t.slice(1, 1, {}, 2); }},
      {"narrow", [](const Tensor& t) { return t.narrow(0, 1, 2); }},
      {"expand",
       [](const Tensor& t) {
         return t.unsqueeze(1).expand({2, 3, 3, 4, 2});
       }},
      {"squeeze", [](const Tensor& t) { return t.narrow(2, 0, 1).squeeze(2); }},
      {"diagonal", [](const Tensor& t) { return t.diagonal(1, 0, 1); }},
      {"unfold", [](const Tensor& t) { return t.unfold(1, 3, 1); }},
      {"as_strided",
       [](const Tensor& t) {
         return t.contiguous().as_strided({3, 3}, {2, 3}, 1);
       }},
      {"as_strided of a strided input",
       [](const Tensor& t) {
         return t.as_strided({3, 2}, {1, 1}, t.storage_offset());
       }},
      {"flatten", [](const Tensor& t) { return t.flatten(1); }},
      {"movedim",
       [](const Tensor& t) {
         return t.movedim({0, 1}, {1, 2});
       }},
      {"tril", [](const Tensor& t) { return t.tril(-1); }},
      {"triu", [](const Tensor& t) { return t.triu(); }},
  };
  for (const auto& [name, f] : cases) {
    SCOPED_TRACE(name);
    const auto squared = [&f = f](const std::vector<Tensor>& in) {
      const Tensor y = f(in[0]);
      return y.mul(y);
    };
    EXPECT_TRUE(test::gradcheck(squared, {x}));
    EXPECT_TRUE(test::gradgradcheck(squared, {x}));
  }
}

TEST(ViewGradients, writes_through_views_reach_the_base_and_its_gradient) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}}).requires_grad_();
  const Tensor y = x.mul(2);
  y.select(0, 1).mul_(10);
  EXPECT_EQ(element(y, {1, 0}), 60);
  y.sum().backward();
  expect_elements(x.grad(), {2, 2}, [](const Coordinates& at) { return at[0] == 1 ? 20.0 : 2.0; });
}

// ---- views in place -------------------------------------------------------------------------------------------------

using InPlace = const Tensor& (*)(const Tensor&);
const std::pair<const char*, InPlace> kInPlace[] = {
    {"squeeze_", [](const Tensor& x) -> const Tensor& { return x.squeeze_(); }},
    {"squeeze_(0)", [](const Tensor& x) -> const Tensor& { return x.squeeze_(0); }},
    {"unsqueeze_", [](const Tensor& x) -> const Tensor& { return x.unsqueeze_(1); }},
    {"transpose_", [](const Tensor& x) -> const Tensor& { return x.transpose_(0, -1); }},
    {"t_", [](const Tensor& x) -> const Tensor& { return x.t_(); }},
};

TEST(ViewsInPlace, of_a_result_are_recorded) {
  for (const auto& [name, change] : kInPlace) {
    SCOPED_TRACE(name);
    const Tensor leaf = tensor({{1.0, 2.0, 3.0}}).requires_grad_(), x = leaf.mul(2);
    EXPECT_TRUE(change(x).is_same(x));
    EXPECT_FALSE(x.is_leaf());
    x.square().mul(arange(3).reshape(x.sizes())).sum().backward();
    expect_elements(leaf.grad(), {1, 3},
                    [](const Coordinates& at) { return 8.0 * static_cast<double>((at[1] + 1) * at[1]); });
  }
}

TEST(ViewsInPlace, of_a_view_of_a_result_leave_its_base_as_it_was) {
  for (const auto& [name, change] : kInPlace) {
    SCOPED_TRACE(name);
    const Tensor leaf = tensor({{1.0, 2.0, 3.0}}).requires_grad_(), x = leaf.mul(2), part = x.slice(1, 1);
    change(part);
    part.mul_(10);
    EXPECT_EQ(x.sizes(), (Dims{1, 3}));
    (x.sum() + part.sum()).backward();
    expect_elements(leaf.grad(), {1, 3}, [](const Coordinates& at) { return at[1] == 0 ? 2.0 : 40.0; });
  }
}

TEST(ViewsInPlace, of_a_view_turn_its_gradient_back) {
  for (const int64_t rows : {3, 2}) {
    const Tensor leaf = arange(9, {kF64}).reshape({3, 3}).clone().requires_grad_(), x = leaf.mul(1);
    const Tensor part = x.slice(0, 0, rows), weights = arange(3 * rows, {kF64}).reshape({3, rows});
    part.transpose_(0, 1);
    part.mul(weights).sum().backward();
    expect_elements(leaf.grad(), {3, 3}, [&](const Coordinates& at) {
      return at[0] < rows ? static_cast<double>(at[1] * rows + at[0]) : 0.0;
    });
  }
}

TEST(ViewsInPlace, of_an_inference_tensor_are_refused_outside_inference_mode) {
  Tensor x;
  {
    const InferenceMode inference;
    x = ones({1, 3});
    x.transpose_(0, 1);
  }
  for (const auto& [name, change] : kInPlace) EXPECT_THROW(change(x), GradError) << name;
}

TEST(ViewsInPlace, of_a_leaf_or_a_view_of_one_are_refused_and_so_is_a_saved_tensor_whose_strides_changed) {
  for (const auto& [name, change] : kInPlace) {
    SCOPED_TRACE(name);
    const Tensor leaf = tensor({{1.0, 2.0, 3.0}}).requires_grad_(), view = leaf.slice(1, 1), saved = leaf.exp();
    EXPECT_THROW(change(leaf), GradError);
    EXPECT_THROW(change(view), GradError);
    EXPECT_EQ(leaf.sizes(), (Dims{1, 3}));
    change(saved);
    EXPECT_THROW(saved.sum().backward(), GradError);
    const NoGrad quiet;
    EXPECT_THROW(change(leaf), GradError);
  }
}

}  // namespace
}  // namespace lorry
