#include "lorry/optim/clip.h"

#include <cmath>

#include "lorry/base/events.h"
#include "tests/optim/support.h"
#include "tests/support/dtypes.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim::test {
namespace {

using lorry::test::kGPU;

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
  EXPECT_EQ(message<ValueError>([] { clip_grad_norm_({}, 1, 0); }),
            "clip_grad_norm_: norm_type is out of range; got 0; expected a number > 0, or infinity");
  EXPECT_EQ(message<ValueError>([] { clip_grad_norm_({}, -1); }),
            "clip_grad_norm_: max_norm is out of range; got -1; expected a number >= 0");
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
            "clip_grad_norm_: the norm is nan; nothing was clipped; expected a finite norm");
  EXPECT_EQ(values(params[1].grad())[0], 2);
  EXPECT_TRUE(std::isnan(clip_grad_norm_(params, 1).item<double>()));
  EXPECT_TRUE(std::isnan(values(params[1].grad())[0]));
}

TEST(ClipGradNorm, repeated_elements_of_a_gradient_are_scaled_once) {
  const Tensor param = parameter({1, 1, 1, 1});
  const Tensor one = tensor_of({2}, {1});
  param.set_grad(
      Tensor(make_counted<lorry::detail::TensorNode>(one.node()->storage, Layout::strided({4}, {0}), 0, kF32)));
  EXPECT_EQ(clip_grad_norm_({param}, 1).item<double>(), 4.0);
  for (const double g : values(param.grad())) EXPECT_NEAR(g, 0.5, 1e-6);
  EXPECT_EQ(one.item<float>(), 2.0f);
}

TEST(ClipGradNorm, a_gradient_or_a_parameter_that_is_there_twice_counts_once) {
  auto params = with_gradients({{3}, {4}});
  for (int i = 0; i < 3; ++i) params.push_back(params[0]);
  params.push_back(parameter(std::vector<double>{0}));
  params.back().set_grad(params[1].grad());
  EXPECT_EQ(clip_grad_norm_(params, 1).item<double>(), 5.0);
  EXPECT_NEAR(values(params[0].grad())[0], 0.6, 1e-6);
  EXPECT_NEAR(values(params[1].grad())[0], 0.8, 1e-6);
  clip_grad_value_(params, 0.5);
  EXPECT_EQ(values(params.back().grad())[0], 0.5);
}

TEST(ClipGradNorm, gradients_with_gaps_are_scaled_where_they_are) {
  for (const DType dtype : lorry::test::kFloatingDTypes) {
    std::mt19937_64 random(1);
    const Tensor wide = random_tensor(random, {7, 9}, dtype), before = wide.clone(),
                 dense = random_tensor(random, {30}, dtype);
    const Tensor non_dense = parameter(zeros({7, 4}, {.dtype = dtype})),
                 other = parameter(zeros({30}, {.dtype = dtype}));
    non_dense.set_grad(wide.narrow(1, 2, 4)), other.set_grad(dense.clone());
    const Tensor same = parameter(zeros({7, 4}, {.dtype = dtype})), rest = parameter(zeros({30}, {.dtype = dtype}));
    same.set_grad(wide.narrow(1, 2, 4).clone().contiguous()), rest.set_grad(dense.clone());
    int copies = 0;
    events::Handler listener =
        events::set_handler([&](const events::Event& event) { copies += event.kind == events::Kind::hidden_copy; });
    const double norm = clip_grad_norm_({non_dense, other}, 1.5).item<double>();
    events::set_handler(std::move(listener));
    EXPECT_EQ(copies, 1) << "for the norm";
    EXPECT_EQ(clip_grad_norm_({same, rest}, 1.5).item<double>(), norm);
    EXPECT_EQ(non_dense.grad().storage().data(), wide.storage().data());
    EXPECT_EQ(bits(non_dense.grad()), bits(same.grad()));
    EXPECT_EQ(bits(other.grad()), bits(rest.grad()));
    EXPECT_EQ(bits(wide.narrow(1, 0, 2)), bits(before.narrow(1, 0, 2)));
    non_dense.grad().select(0, 3).fill_(NAN);
    clip_grad_norm_({non_dense, other}, 1.5);
    for (const Tensor& grad : {non_dense.grad(), other.grad()})
      for (const double x : values(grad)) EXPECT_TRUE(std::isnan(x));
    EXPECT_EQ(bits(wide.narrow(1, 6, 3)), bits(before.narrow(1, 6, 3)));
  }
}

TEST(ClipGradNorm, a_copy_that_stays_is_an_event) {
  const Tensor param = parameter({1, 1, 1, 1});
  param.set_grad(ones({1}).expand({4}));
  std::vector<std::string> heard;
  events::Handler listener = events::set_handler(
      [&](const events::Event& event) { heard.push_back(fmt::format("{}: {}", event.source, event.text)); });
  clip_grad_value_({param}, 0.25);
  events::set_handler(std::move(listener));
  EXPECT_EQ(heard,
            std::vector<std::string>{"clip_grad_value_: a gradient whose elements share memory is replaced by a copy"});
  EXPECT_EQ(values(param.grad()), std::vector<double>(4, 0.25));
}

TEST(ClipGradNorm, gradients_that_share_part_of_their_memory_are_refused) {
  const Tensor memory = ones({6});
  const Tensor a = parameter({1, 1, 1, 1}), b = parameter({1, 1, 1, 1});
  a.set_grad(memory.slice(0, 0, 4)), b.set_grad(memory.slice(0, 2, 6));
  EXPECT_EQ(message<ShapeError>([&] {
              clip_grad_norm_({a, b}, 1);
            }),
            "clip_grad_norm_: a tensor of the list that is written shares memory with another entry's; entries are "
            "computed in no order; expected none to; clone "
            "one of them first");
  EXPECT_EQ(values(memory), std::vector<double>(6, 1));
  EXPECT_NEAR(get_total_norm({a.grad(), b.grad()}).item<double>(), std::sqrt(8), 1e-15);
}

TEST(ClipGradNorm, gradients_may_be_on_several_devices) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const double type : {1.0, 2.0, 3.0, double{INFINITY}})
    for (const double max_norm : {1.0, 1e6}) {
      std::vector<Tensor> here, spread;
      std::mt19937_64 random(2);
      for (int i = 0; i < 6; ++i) {
        const Tensor grad = random_tensor(random, {300 + i}, i % 2 ? kBF16 : kF32).to(kCPU);
        const Device device = i % 3 == 1 ? kGPU : kCPU;
        here.push_back(zeros_like(grad).requires_grad_()), here.back().set_grad(grad.clone());
        spread.push_back(zeros_like(grad).to(device).requires_grad_()), spread.back().set_grad(grad.to(device).clone());
      }
      const double norm = clip_grad_norm_(here, max_norm, type).item<double>();
      const Tensor got = clip_grad_norm_(spread, max_norm, type);
      EXPECT_EQ(got.device(), kCPU);
      EXPECT_NEAR(got.item<double>(), norm, 1e-12 * norm);
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_TRUE(spread[i].grad().cpu().to(kF64).allclose(here[i].grad().to(kF64), 1e-2, 1e-7)) << i;
    }
}

TEST(ClipGradNorm, refuses_what_may_not_be_written) {
  alignas(64) static float rom[3] = {1, 2, 3};
  const Tensor param = parameter(zeros({3}, {.device = kCPU}));
  param.set_grad(Tensor(make_counted<lorry::detail::TensorNode>(
      Storage::foreign(kCPU, rom, sizeof(rom), nullptr, nullptr, /*read_only=*/true), Layout::contiguous({3}), 0,
      kF32)));
  EXPECT_EQ(message<ValueError>([&] { clip_grad_norm_({param}, 1); }),
            "clip_grad_norm_: the memory is read-only; got [3] f32 cpu; clone it first");
}

TEST(ClipGradValue, clamps_every_element) {
  const auto params = with_gradients({{-3, 0.5, 2}, {7}});
  clip_grad_value_(params, 1);
  EXPECT_EQ(values(params[0].grad()), (std::vector<double>{-1, 0.5, 1}));
  EXPECT_EQ(values(params[1].grad()), std::vector<double>{1});
  EXPECT_EQ(message<ValueError>([&] { clip_grad_value_(params, 0); }),
            "clip_grad_value_: clip_value is out of range; got 0; expected a number > 0");
}

}  // namespace
}  // namespace lorry::optim::test
