// Norms of lists against long double.

#include <cmath>

#include "lorry/base/events.h"
#include "tests/foreach/support.h"

namespace lorry::foreach::test {
namespace {

long double norm_of(const std::vector<double>& x, double ord) {
  long double sum = 0;
  for (const double v : x) {
    const long double size = std::fabs(static_cast<long double>(v));
    sum = std::isinf(ord) ? std::max(sum, size) : sum + std::pow(size, static_cast<long double>(ord));
  }
  return std::isinf(ord) ? sum : std::pow(sum, 1 / static_cast<long double>(ord));
}

std::vector<Tensor> mixed() {
  std::vector<Tensor> x = assorted(kF32, 1);
  for (const Tensor& t : assorted(kBF16, 100)) x.push_back(t);
  for (const Tensor& t : assorted(kF64, 200)) x.insert(x.begin() + 3, t);
  for (const Tensor& t : assorted(kF16, 300)) x.push_back(t);
  return x;
}

TEST(ForeachNorm, per_tensor_and_total_in_one_call) {
  const TensorList x = mixed();
  for (const double ord : {1.0, 2.0, double{INFINITY}, 3.0, 0.5})
    for (const Strategy strategy : kAll) {
      SCOPED_TRACE(testing::Message() << ord << " " << name(strategy));
      const StrategyScope scope(strategy);
      const Norms got = norms(x, ord);
      std::vector<double> all;
      for (size_t e = 0; e < x.size(); ++e) {
        const std::vector<double> values = x[e].to_vector<double>();
        all.insert(all.end(), values.begin(), values.end());
        const auto want = static_cast<double>(norm_of(values, ord));
        EXPECT_NEAR(got.per_tensor[e].item<double>(), want, 1e-12 * (1 + want)) << e;
        EXPECT_EQ(got.per_tensor[e].dim(), 0);
      }
      const auto want = static_cast<double>(norm_of(all, ord));
      EXPECT_NEAR(got.total.item<double>(), want, 1e-12 * want);
      EXPECT_EQ(got.total.item<double>(), total_norm(x, ord).item<double>());
    }
}

TEST(ForeachNorm, has_the_dtype_of_each_tensor) {
  const TensorList x = mixed();
  const TensorList got = norm(x), wide = norm(x, 2, kF64), exact = norms(x).per_tensor;
  for (size_t e = 0; e < x.size(); ++e) {
    EXPECT_TRUE(same_bits(got[e], exact[e].to(x[e].dtype())));
    EXPECT_TRUE(same_bits(wide[e], exact[e]));
  }
}

TEST(ForeachNorm, follows_tensors_that_move_and_change) {
  const TensorList x = {random_tensor({1'000}, kF32, 1), random_tensor({30}, kF32, 2)};
  const auto check = [&] {
    std::vector<double> all;
    for (const Tensor& t : x)
      for (const double v : t.to_vector<double>()) all.push_back(v);
    const auto want = static_cast<double>(norm_of(all, 2));
    EXPECT_NEAR(total_norm(x).item<double>(), want, 1e-12 * want);
    EXPECT_NEAR(norms(x).total.item<double>(), want, 1e-12 * want);
  };
  check();
  mul_(x, 2);
  check();
  x[0].set_data(random_tensor({1'000}, kF32, 3));
  check();
  x[1].set_data(random_tensor({10'000}, kF32, 4));
  check();
  x[1].set_data(random_tensor({10'000}, kBF16, 4));
  check();
  x[1].set_data(random_tensor({3, 5}, kF32, 5));
  check();
  x[1].set_data(random_tensor({3, 67}, kF32, 6).narrow(0, 0, 1).narrow(1, 0, 5));  // 3 * 31 + 5 is 1 * 31 + 67
  check();
}

TEST(ForeachNorm, says_what_it_copies) {
  int copies = 0;
  events::Handler before =
      events::set_handler([&](const events::Event& event) { copies += event.kind == events::Kind::hidden_copy; });
  norms({random_tensor({9, 12}, kF32, 1).transpose(0, 1), random_tensor({9, 12}, kF32, 1).slice(1, 2, 9)});
  events::set_handler(std::move(before));
  EXPECT_EQ(copies, 1);
}

TEST(ForeachNorm, of_nothing_is_zero) {
  EXPECT_EQ(total_norm(TensorList()).item<double>(), 0.0);
  EXPECT_EQ(norms({zeros({0}), zeros({0, 3})}).total.item<double>(), 0.0);
  EXPECT_TRUE(norm(TensorList()).empty());
}

TEST(ForeachNorm, refuses_what_has_no_norm) {
  const TensorList x = {random_tensor({5}, kF32, 1)};
  EXPECT_EQ(message<ValueError>([&] { norms(x, 0); }),
            "norms: ord is out of range; got 0; expected a number > 0, or infinity");
  EXPECT_THROW(norms(x, -1), ValueError);
  EXPECT_THROW(norms(x, NAN), ValueError);
  EXPECT_THROW(norms({random_tensor({5}, kI32, 1)}), DTypeError);
  EXPECT_THROW(norm(x, 2, kI32), DTypeError);
  EXPECT_THROW(norms({random_tensor({5}, kF32, 1).requires_grad_()}), GradError);
}

TEST(ForeachNorm, of_each_tensor_is_recorded) {
  const Tensor x = random_tensor({5}, kF32, 1).requires_grad_();
  norm({x})[0].backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(ForeachClip, scales_all_tensors_by_one_factor) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    const StrategyScope scope(strategy);
    const TensorList x = clones(mixed());
    for (int round = 0; round < 3; ++round) {
      const std::vector<Tensor> before = clones(x.tensors());
      const double norm = total_norm(x).item<double>(), factor = std::min(1.0, 5.0 / (norm + 1e-6));
      EXPECT_EQ(clip_norm_(x, 5).item<double>(), norm);
      for (size_t e = 0; e < x.size(); ++e) EXPECT_TRUE(same_bits(x[e], before[e] * factor)) << e;
      // one that was not dense is then
      for (const size_t e : {2u, 5u, 11u, 20u}) x[e].set_data(random_tensor(x[e].sizes(), x[e].dtype(), 50 + e));
    }
  }
}

TEST(ForeachClip, writes_nothing_that_is_short_enough_or_not_finite_where_that_is_an_error) {
  const TensorList x = {full({3}, 3.0), full({4}, 2.0)};
  const std::vector<Tensor> before = clones(x.tensors());
  EXPECT_EQ(clip_norm_(x, 7).item<double>(), std::sqrt(43));
  EXPECT_TRUE(same_bits(x, before));
  x[1].fill_(INFINITY);
  EXPECT_EQ(message<ValueError>([&] { clip_norm_(x, 1, 2, true); }),
            "clip_norm_: the norm is inf; nothing was clipped; expected a finite norm");
  EXPECT_TRUE(same_bits(x[0], before[0]));
  clip_norm_(x, 1);
  EXPECT_EQ(x[0].sum().item<double>(), 0) << "as PyTorch does";
  EXPECT_TRUE(std::isnan(x[1].sum().item<double>()));
  clip_norm_(x, 1);
  EXPECT_TRUE(std::isnan(x[0][0].item<double>()));
}

TEST(ForeachClip, refuses_what_it_cannot_write) {
  const Tensor x = random_tensor({20}, kF32, 1);
  EXPECT_EQ(message<ValueError>([&] { clip_norm_({x}, -1); }),
            "clip_norm_: max_norm is out of range; got -1; expected a number >= 0");
  EXPECT_EQ(message<ValueError>([&] { clip_norm_({}, 1, 0); }),
            "clip_norm_: ord is out of range; got 0; expected a number > 0, or infinity");
  EXPECT_THROW(clip_norm_({x, x}, 1), ShapeError);
  EXPECT_THROW(clip_norm_({x.slice(0, 0, 10), x.slice(0, 9, 19)}, 1), ShapeError);
  EXPECT_THROW(clip_norm_({x.slice(0, 0, 1).expand({4})}, 1), ShapeError);
  EXPECT_THROW(clip_norm_({random_tensor({5}, kF32, 1).requires_grad_()}, 1), GradError);
  EXPECT_NO_THROW(clip_norm_({x.slice(0, 0, 10), x.slice(0, 10, 20)}, 1));
}

// ---- a norm in two parts --------------------------------------------------------------------------------------------

TEST(ForeachNormInParts, has_the_bits_of_the_whole) {
  const TensorList x = mixed();
  for (const double ord : {1.0, 2.0, double{INFINITY}, 3.0})
    for (const double max_norm : {5.0, double{INFINITY}}) {
      SCOPED_TRACE(testing::Message() << ord << " " << max_norm);
      const FinishedNorm finished = finish_norm(power_sum(x, ord), {.ord = ord, .max_norm = max_norm});
      EXPECT_TRUE(same_bits(finished.norm, total_norm(x, ord)));
      const FinishedNorm at_once = clip_factor(x, {.ord = ord, .max_norm = max_norm});
      EXPECT_TRUE(same_bits(at_once.norm, finished.norm));
      EXPECT_TRUE(same_bits(at_once.factor, finished.factor));
      const TensorList whole = clones(x.tensors()), parts = clones(x.tensors());
      EXPECT_TRUE(same_bits(finished.norm, clip_norm_(whole, max_norm, ord)));
      EXPECT_EQ(&scale_norm_(parts, finished.factor), &parts);
      EXPECT_TRUE(same_bits(parts, whole.tensors()));
    }
}

TEST(ForeachNormInParts, a_sum_may_be_joined_with_others) {
  const TensorList x = mixed();
  const std::vector<Tensor>& all = x.tensors();
  const auto half = all.begin() + static_cast<int64_t>(all.size() / 2);
  const TensorList first = std::vector<Tensor>(all.begin(), half), second = std::vector<Tensor>(half, all.end());
  std::vector<double> values;
  for (const Tensor& t : x)
    for (const double v : t.to_vector<double>()) values.push_back(v);
  for (const double ord : {1.0, 2.0, 3.0}) {
    const auto want = static_cast<double>(norm_of(values, ord));
    const Tensor sum = power_sum(first, ord) + power_sum(second, ord);
    EXPECT_NEAR(finish_norm(sum, {.ord = ord}).norm.item<double>(), want, 1e-12 * want);
  }
  const Tensor largest = lorry::maximum(power_sum(first, INFINITY), power_sum(second, INFINITY));
  EXPECT_EQ(finish_norm(largest, {.ord = INFINITY}).norm.item<double>(),
            static_cast<double>(norm_of(values, INFINITY)));
}

TEST(ForeachNormInParts, takes_out_the_scale_of_a_loss_and_may_skip) {
  const TensorList x = {full({3}, 6.0), full({4}, 4.0)};  // a scale of 2
  const Tensor sum = power_sum(x), scale = full({}, 2.0, {.dtype = kF64});
  EXPECT_EQ(sum.item<double>(), 3 * 36 + 4 * 16);
  const double norm = std::sqrt(172.0) / 2;
  const FinishedNorm clipped = finish_norm(sum, {.max_norm = 1, .scale = scale});
  EXPECT_EQ(clipped.norm.item<double>(), norm);
  EXPECT_EQ(clipped.factor.item<double>(), 0.5 * (1 / (norm + 1e-6)));
  EXPECT_EQ(finish_norm(sum, {.scale = scale}).factor.item<double>(), 0.5);
  x[0].fill_(INFINITY);
  EXPECT_TRUE(std::isnan(finish_norm(power_sum(x), {.skip_nonfinite = true}).factor.item<double>()));
  EXPECT_EQ(finish_norm(power_sum(x), {.max_norm = 1}).factor.item<double>(), 0.0);
  x[0].fill_(NAN);
  EXPECT_EQ(finish_norm(power_sum(x), {.max_norm = 1}).factor.item<double>(), INFINITY);
}

TEST(ForeachNormInParts, of_nothing_is_zero_and_bad_input_is_refused) {
  EXPECT_EQ(power_sum(TensorList()).item<double>(), 0.0);
  EXPECT_EQ(finish_norm(power_sum({zeros({0})})).norm.item<double>(), 0.0);
  EXPECT_EQ(clip_factor(TensorList(), {.max_norm = 1}).norm.item<double>(), 0.0);
  EXPECT_EQ(clip_factor(TensorList(), {.max_norm = 1}).factor.item<double>(), 1.0);
  const Tensor one = ones({}, {.dtype = kF64}), x = random_tensor({20}, kF32, 1);
  EXPECT_TRUE(scale_norm_(TensorList(), one).empty());
  EXPECT_EQ(message<ValueError>([&] { finish_norm(one, {.max_norm = -1}); }),
            "finish_norm: max_norm is out of range; got -1; expected a number >= 0");
  EXPECT_THROW(finish_norm(one, {.ord = 0}), ValueError);
  EXPECT_THROW(clip_factor({x}, {.ord = 0}), ValueError);
  EXPECT_THROW(clip_factor({x}, {.scale = ones({})}), DTypeError);
  EXPECT_THROW(finish_norm(ones({})), DTypeError);
  EXPECT_THROW(finish_norm(ones({2}, {.dtype = kF64})), DTypeError);
  EXPECT_THROW(finish_norm(one, {.scale = ones({})}), DTypeError);
  EXPECT_THROW(power_sum({x}, 0), ValueError);
  EXPECT_THROW(power_sum({random_tensor({5}, kI32, 1)}), DTypeError);
  EXPECT_THROW(scale_norm_({x}, ones({})), DTypeError);
  EXPECT_THROW(scale_norm_({x, x}, one), ShapeError);
  EXPECT_THROW(scale_norm_({random_tensor({5}, kF32, 1).requires_grad_()}, one), GradError);
  EXPECT_THROW(finish_norm(Tensor()), ValueError);
}

}  // namespace
}  // namespace lorry::foreach::test
