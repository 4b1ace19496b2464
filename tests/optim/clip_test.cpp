#include "lorry/optim/clip.h"

#include <cmath>

#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

std::vector<Tensor> with_gradients(const std::vector<std::vector<double>>& grads, DType dtype = kF32) {
  std::vector<Tensor> params;
  for (const auto& g : grads) {
    params.push_back(parameter(std::vector<double>(g.size()), dtype));
    params.back().set_grad(tensor_of(g, {static_cast<int64_t>(g.size())}, dtype));
  }
  return params;
}

TEST(ClipGradNorm, scales_all_gradients_by_their_common_norm) {
  const auto params = with_gradients({{3}, {0, 4}, {}});
  EXPECT_EQ(clip_grad_norm_(params, 1.0).item<double>(), 5.0);
  EXPECT_NEAR(values(params[0].grad())[0], 0.6, 1e-6);
  EXPECT_NEAR(values(params[1].grad())[1], 0.8, 1e-6);
}

TEST(ClipGradNorm, short_gradients_keep_their_bits) {
  const auto params = with_gradients({{3}, {0, 4}});
  const uint32_t version = params[0].grad().version();
  EXPECT_EQ(clip_grad_norm_(params, 5.1).item<double>(), 5.0);
  EXPECT_EQ(values(params[0].grad())[0], 3);
  EXPECT_GE(params[0].grad().version(), version);
}

TEST(ClipGradNorm, knows_every_power_and_infinity) {
  EXPECT_EQ(clip_grad_norm_(with_gradients({{3}, {-4}}), 100, 1).item<double>(), 7.0);
  EXPECT_EQ(clip_grad_norm_(with_gradients({{3}, {-4}}), 100, INFINITY).item<double>(), 4.0);
  EXPECT_EQ(clip_grad_norm_(with_gradients({{3}, {-4}}, kBF16), 100).item<double>(), 5.0);
  EXPECT_EQ(clip_grad_norm_({}, 1).item<double>(), 0.0);
  EXPECT_NEAR(clip_grad_norm_(with_gradients({{3}, {-4}}), 100, 3).item<double>(), std::cbrt(27 + 64), 1e-14);
  EXPECT_EQ(message<ValueError>([] { clip_grad_norm_({}, 1, 0); }), "clip_grad_norm_: norm_type is out of range; got 0; expected a number > 0, or infinity");
  EXPECT_EQ(message<ValueError>([] { clip_grad_norm_({}, -1); }), "clip_grad_norm_: max_norm is out of range; got -1; expected a number >= 0");
}

TEST(ClipGradNorm, parameters_without_a_gradient_are_passed_over) {
  auto params = with_gradients({{3, 4}});
  params.push_back(parameter({1}));
  EXPECT_EQ(clip_grad_norm_(params, 1).item<double>(), 5.0);
  EXPECT_FALSE(params[1].grad().defined());
}

TEST(ClipGradNorm, a_norm_that_is_not_finite_is_an_error_where_asked) {
  const auto params = with_gradients({{1, NAN}, {2}});
  EXPECT_EQ(message<ValueError>([&] { clip_grad_norm_(params, 1, 2, /*error_if_nonfinite=*/true); }),
            "clip_grad_norm_: the norm of the gradients is nan; nothing was clipped; expected a finite norm");
  EXPECT_EQ(values(params[1].grad())[0], 2);
  EXPECT_TRUE(std::isnan(clip_grad_norm_(params, 1).item<double>()));
  EXPECT_TRUE(std::isnan(values(params[1].grad())[0]));
}

TEST(ClipGradNorm, repeated_elements_of_a_gradient_are_scaled_once) {
  const Tensor param = parameter({1, 1, 1, 1});
  const Tensor one = tensor_of({2}, {1});
  param.set_grad(Tensor(make_counted<TensorNode>(one.node()->storage, Layout::strided({4}, {0}), 0, kF32)));
  EXPECT_EQ(clip_grad_norm_({param}, 1).item<double>(), 4.0);
  for (const double g : values(param.grad())) EXPECT_NEAR(g, 0.5, 1e-6);
  EXPECT_EQ(one.item<float>(), 2.0f);
}

TEST(ClipGradValue, clamps_every_element) {
  const auto params = with_gradients({{-3, 0.5, 2}, {7}});
  clip_grad_value_(params, 1);
  EXPECT_EQ(values(params[0].grad()), (std::vector<double>{-1, 0.5, 1}));
  EXPECT_EQ(values(params[1].grad()), std::vector<double>{1});
  EXPECT_EQ(message<ValueError>([&] { clip_grad_value_(params, 0); }), "clip_grad_value_: clip_value is out of range; got 0; expected a number > 0");
}

}  // namespace
}  // namespace lorry::optim::test
