// The public forms: what the rows generate agrees with itself, and the hand-written signatures do what they say.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lorry/formula/pointwise.h"
#include "lorry/ops/dispatch/door.h"
#include "tests/ops/operands.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

DType dtype_for(Domain d) { return d == Domain::whole || d == Domain::integer ? kI32 : kF32; }

/// Function, method, in-place and out forms of one row.
template <class Function, class Method, class InPlace, class Out>
void check_forms(const char* name, DType t, bool boolean, Function&& function, Method&& method, InPlace&& in_place,
                 Out&& out) {
  SCOPED_TRACE(name);
  const Tensor x = random_tensor({3, 5}, t, 1), y = random_tensor({5}, t, 2);
  const Tensor want = function(x, y);
  EXPECT_EQ(want.dtype(), boolean ? kBool : t);
  EXPECT_TRUE(same_values(method(x, y), want));
  const Tensor self = materialise(x, {3, 5});
  const uint32_t version = self.version();
  EXPECT_TRUE(in_place(self, y).is_same(self));
  EXPECT_GT(self.version(), version);
  EXPECT_TRUE(same_values(self, want.to(t)));
  const Tensor result = empty({3, 5}, {want.dtype()});
  EXPECT_TRUE(out(result, x, y).is_same(result));
  EXPECT_TRUE(same_values(result, want));
}

TEST(PointwiseForms, every_generated_form_of_a_row_agrees) {
#define LORRY_UNARY(name, Formula, result, domain)                                                                     \
  check_forms(                                                                                                         \
      #name, dtype_for(Domain::domain), Result::result == Result::truth,                                               \
      [](const Tensor& x, const Tensor&) { return name(x); }, [](const Tensor& x, const Tensor&) { return x.name(); }, \
      [](const Tensor& x, const Tensor&) -> const Tensor& { return x.name##_(); },                                     \
      [](const Tensor& o, const Tensor& x, const Tensor&) -> const Tensor& { return name##_out(o, x); });
#define LORRY_BINARY(name, Formula, result, domain)                                                            \
  check_forms(                                                                                                 \
      #name, dtype_for(Domain::domain), Result::result == Result::truth,                                       \
      [](const Tensor& x, const Tensor& y) { return name(x, y); },                                             \
      [](const Tensor& x, const Tensor& y) { return x.name(y); },                                              \
      [](const Tensor& x, const Tensor& y) -> const Tensor& { return x.name##_(y); },                          \
      [](const Tensor& o, const Tensor& x, const Tensor& y) -> const Tensor& { return name##_out(o, x, y); }); \
  {                                                                                                            \
    const Tensor y = random_tensor({5}, dtype_for(Domain::domain), 2),                                         \
                 two = empty({}, {dtype_for(Domain::domain)}).fill_(2);                                        \
    EXPECT_TRUE(same_values(name(2, y), name(two, y))) << #name << " with a number first";                     \
    EXPECT_TRUE(same_values(name(y, 2), name(y, two))) << #name << " with a number second";                    \
  }
#include "lorry/formula/pointwise.def"
}

TEST(PointwiseForms, operators_are_the_named_functions) {
  const Tensor x = random_tensor({7}, kF32, 1), y = random_tensor({7}, kF32, 2);
  EXPECT_TRUE(same_values(x + y, add(x, y)));
  EXPECT_TRUE(same_values(x - y, sub(x, y)));
  EXPECT_TRUE(same_values(x * y, mul(x, y)));
  EXPECT_TRUE(same_values(x / y, div(x, y)));
  EXPECT_TRUE(same_values(-x, neg(x)));
  EXPECT_TRUE(same_values(1 - x, sub(1, x)));
  EXPECT_TRUE(same_values(2.0 / x, div(2.0, x)));
  EXPECT_TRUE(same_values(3 + x, add(x, 3)));
  EXPECT_TRUE(same_values(3 * x, mul(x, 3)));
  const Tensor z = materialise(x, {7});
  z += y;
  EXPECT_TRUE(same_values(z, x + y));
  z -= y;
  z *= 2;
  z /= y;
  EXPECT_TRUE(same_values(z, (x + y - y) * 2 / y));
}

TEST(PointwiseForms, alpha_scales_the_second_operand) {
  const Tensor x = random_tensor({7}, kF32, 1), y = random_tensor({7}, kF32, 2);
  EXPECT_TRUE(same_values(add(x, y, 2.5), x + 2.5 * y));
  EXPECT_TRUE(same_values(x.sub(y, 2), x - 2 * y));
  const Tensor z = materialise(x, {7});
  z.add_(y, 0.5);
  EXPECT_TRUE(same_values(z, x + 0.5 * y));
  const Tensor i = random_tensor({7}, kI32, 1);
  EXPECT_EQ(add(i, i, 3).dtype(), kI32);
  EXPECT_THROW(add(i, i, 0.5), DTypeError);
  EXPECT_THROW(addcmul(i, i, i, 0.5), DTypeError);
}

TEST(PointwiseForms, division_rounds_as_asked) {
  const Tensor x = empty({4}, {kI64}), y = empty({4}, {kI64});
  const double xs[] = {7, -7, 7, -7}, ys[] = {2, 2, -2, -2};
  for (int i = 0; i < 4; ++i) set_element(x, i, xs[i]), set_element(y, i, ys[i]);
  EXPECT_EQ(elements(div(x, y, "floor")), (std::vector<double>{3, -4, -4, 3}));
  EXPECT_EQ(elements(div(x, y, "trunc")), (std::vector<double>{3, -3, -3, 3}));
  EXPECT_EQ(elements(remainder(x, y)), (std::vector<double>{1, 1, -1, -1}));
  EXPECT_EQ(elements(fmod(x, y)), (std::vector<double>{1, -1, 1, -1}));
  EXPECT_EQ(elements(div(x, y)), (std::vector<double>{3.5, -3.5, -3.5, 3.5}));
  EXPECT_EQ(div(x, y, "floor").dtype(), kI64);
  EXPECT_EQ(div(x, y).dtype(), kF32);
  EXPECT_THROW(div(x, y, "ceil"), ValueError);
}

TEST(PointwiseForms, whole_numbers_of_every_size_are_divided_exactly) {
  std::vector<int64_t> xs, ys;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t magnitudes[] = {1, 3, (1 << 26) + 1, int64_t{1} << 51, int64_t{1} << 53, kMost - 2};
  for (const int64_t x : magnitudes)
    for (const int64_t y : magnitudes)
      for (int near = -2; near <= 2; ++near)
        for (const int sign : {-1, 1})
          for (const int64_t divisor : {y, -y, y / 3 + 1, kMost}) xs.push_back(sign * x + near), ys.push_back(divisor);
  const auto n = static_cast<int64_t>(xs.size());
  const auto check = [&](const Tensor& x, const Tensor& y, int64_t begin, int64_t end) {
    const auto floors = floor_divide(x, y).to_vector<int64_t>(), rests = remainder(x, y).to_vector<int64_t>();
    const auto truncs = div(x, y, "trunc").to_vector<int64_t>(), signed_rests = fmod(x, y).to_vector<int64_t>();
    for (int64_t i = begin; i < end; ++i) {
      SCOPED_TRACE(fmt::format("{} by {}", xs[i], ys[i]));
      const int64_t quotient = xs[i] / ys[i], rest = xs[i] % ys[i];
      const bool below = rest != 0 && (rest < 0) != (ys[i] < 0);
      ASSERT_EQ(truncs[i - begin], quotient);
      ASSERT_EQ(signed_rests[i - begin], rest);
      ASSERT_EQ(floors[i - begin], quotient - below);
      ASSERT_EQ(rests[i - begin], below ? rest + ys[i] : rest);
    }
  };
  const Tensor x = from_data(xs, {n}), y = from_data(ys, {n});
  check(x, y, 0, n);
  for (int64_t begin = 0, length = 1; begin + length <= n; begin += length++)
    check(x.slice(0, begin, begin + length), y.slice(0, begin, begin + length), begin, begin + length);
}

TEST(PointwiseForms, whole_numbers_are_not_divided_by_zero) {
  const Tensor x = random_tensor({4}, kI32, 1), zeros = random_tensor({4}, kI32, 2);
  set_element(zeros, 2, 0);
  if (x.device().is_cpu()) {
    EXPECT_THROW(floor_divide(x, zeros), ValueError);
    EXPECT_THROW(div(x, zeros, "trunc"), ValueError);
    EXPECT_THROW(x.fmod_(zeros), ValueError);
  } else {  // looking for zeros would mean waiting
    EXPECT_EQ(element(floor_divide(x, zeros), 2), 0);
    EXPECT_EQ(element(remainder(x, zeros), 2), 0);
  }
  EXPECT_THROW(remainder(x, 0), ValueError);
  EXPECT_THROW(pow(x, -1), ValueError);
  EXPECT_TRUE(std::isinf(element(div(x, zeros), 2)));
  EXPECT_EQ(element(floor_divide(x.to(kF32), 0.0), 0), INFINITY);
}

TEST(PointwiseForms, clamp_takes_numbers_tensors_and_missing_bounds) {
  const Tensor x = random_tensor({9}, kF32, 1), low = random_tensor({9}, kF32, 2), high = low + 0.5;
  EXPECT_TRUE(same_values(clamp(x, -1, 1), minimum(maximum(x, -1), 1)));
  EXPECT_TRUE(same_values(clamp(x, low, high), minimum(maximum(x, low), high)));
  EXPECT_TRUE(same_values(clamp(x, {}, 0.5), minimum(x, 0.5)));
  EXPECT_TRUE(same_values(x.clamp(0.5), maximum(x, 0.5)));
  EXPECT_TRUE(same_values(clamp(x, 3, -3), empty_like(x).fill_(-3)));
  const Tensor self = materialise(x, {9});
  self.clamp_(low, high);
  EXPECT_TRUE(same_values(self, clamp(x, low, high)));
  EXPECT_TRUE(same_values(clamp_out(empty({9}), x, -1, 1), clamp(x, -1, 1)));
  EXPECT_THROW(clamp(x, {}, {}), ValueError);
  EXPECT_EQ(clamp_min(tensor({true, false}), tensor({false, true})).to_vector<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ(clamp_max(tensor({true, false}), 0).dtype(), kI64);
}

TEST(PointwiseForms, where_and_masked_fill_choose_by_a_bool) {
  const Tensor x = random_tensor({3, 4}, kF32, 1), mask = gt(x, 0);
  const Tensor y = where(mask, x, -1);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(element(y, i), element(x, i) > 0 ? element(x, i) : -1);
  EXPECT_TRUE(same_values(masked_fill(x, logical_not(mask), -1), y));
  const Tensor self = materialise(x, {3, 4});
  self.masked_fill_(logical_not(mask), -1);
  EXPECT_TRUE(same_values(self, y));
  EXPECT_EQ(x.to(kF16).masked_fill(mask, 2.0).dtype(), kF16);
  EXPECT_EQ(where(mask, x.to(kF16), x.to(kI64)).dtype(), kF16);
  EXPECT_TRUE(same_values(where_out(empty({3, 4}), mask, x, -1), y));
  EXPECT_THROW(where(x, x, x), DTypeError);
  EXPECT_THROW(masked_fill(x, mask, x), ShapeError);
  EXPECT_THROW(masked_fill(x.to(kI32), mask, 0.5), DTypeError);
}

TEST(PointwiseForms, activations_have_pytorchs_defaults) {
  const Tensor x = random_tensor({20}, kF64, 1);
  for (int64_t i = 0; i < 20; ++i) {
    const double v = element(x, i);
    EXPECT_DOUBLE_EQ(element(leaky_relu(x), i), v > 0 ? v : 0.01 * v);
    EXPECT_NEAR(element(elu(x), i), v > 0 ? v : std::expm1(v), 1e-15);
    EXPECT_NEAR(element(softplus(x), i), std::log1p(std::exp(v)), 1e-14);
    EXPECT_NEAR(element(gelu(x, "tanh"), i),
                0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))), 1e-14);
  }
  EXPECT_TRUE(same_values(gelu(x, "none"), gelu(x)));
  EXPECT_THROW(gelu(x, "erf"), ValueError);
  EXPECT_EQ(element(softplus(empty({1}).fill_(1000.0)), 0), 1000.0);
}

TEST(PointwiseForms, nan_to_num_takes_the_limits_of_the_dtype) {
  for (const DType t : kFloatingDTypes) {
    const Tensor x = empty({4}, {t});
    const double values[] = {NAN, INFINITY, -INFINITY, 1.5};
    for (int i = 0; i < 4; ++i) set_element(x, i, values[i]);
    const std::vector<double> y = elements(nan_to_num(x));
    EXPECT_EQ(y[0], 0);
    EXPECT_TRUE(std::isfinite(y[1]) && y[1] > 6e4) << name(t);
    EXPECT_EQ(y[2], -y[1]);
    EXPECT_EQ(y[3], 1.5);
    EXPECT_EQ(element(nan_to_num(x, 7, 8, 9), 2), 9);
  }
  const Tensor i = random_tensor({4}, kI32, 1);
  EXPECT_TRUE(same_values(nan_to_num(i), i));
}

TEST(PointwiseForms, the_others_follow_their_formulas) {
  const Tensor x = random_tensor({6}, kF64, 1), a = random_tensor({6}, kF64, 2), b = random_tensor({6}, kF64, 3);
  EXPECT_TRUE(same_values(addcmul(x, a, b, 2), x + 2 * a * b));
  EXPECT_TRUE(same_values(addcdiv(x, a, b, 2), x + 2 * a / b));
  EXPECT_TRUE(same_values(x.addcmul(a, b), x + a * b));
  EXPECT_TRUE(same_values(lerp(x, a, 0.25), x + 0.25 * (a - x)));
  EXPECT_TRUE(same_values(lerp(x, a, 1.0), a));
  const Tensor self = materialise(x, {6});
  self.lerp_(a, b);
  EXPECT_TRUE(same_values(self, lerp(x, a, b)));
  self.addcmul_(a, b, 2).addcdiv_(a, b);
  EXPECT_TRUE(same_values(self, addcdiv(addcmul(lerp(x, a, b), a, b, 2), a, b)));
}

TEST(PointwiseForms, an_out_form_refuses_to_be_differentiated) {
  const Tensor x = random_tensor({3}, kF32, 1), out = empty({3});
  EXPECT_THROW(exp_out(Tensor(), x), ValueError);
  EXPECT_THROW(add_out(empty({3}, {kI32}), x, 1.5), DTypeError);
  EXPECT_NO_THROW(exp_out(out, x));
}

using Truth = std::vector<bool>;
using Whole = std::vector<int64_t>;

TEST(PointwiseForms, comparison_operators_give_truth_values_for_tensors_and_numbers_on_either_side) {
  const Tensor x = tensor({1, 2, 3}), y = tensor({3, 2, 1});
  EXPECT_EQ((x == y).to_vector<bool>(), (Truth{false, true, false}));
  EXPECT_EQ((x != y).to_vector<bool>(), (Truth{true, false, true}));
  EXPECT_EQ((x < y).to_vector<bool>(), (Truth{true, false, false}));
  EXPECT_EQ((x <= y).to_vector<bool>(), (Truth{true, true, false}));
  EXPECT_EQ((x > y).to_vector<bool>(), (Truth{false, false, true}));
  EXPECT_EQ((x >= y).to_vector<bool>(), (Truth{false, true, true}));
  EXPECT_EQ((x == 2).to_vector<bool>(), (Truth{false, true, false}));
  EXPECT_EQ((2 == x).to_vector<bool>(), (Truth{false, true, false}));
  EXPECT_EQ((x != 2).to_vector<bool>(), (Truth{true, false, true}));
  EXPECT_EQ((x < 2.5).to_vector<bool>(), (Truth{true, true, false}));
  EXPECT_EQ((2.5 < x).to_vector<bool>(), (Truth{false, false, true}));
  EXPECT_EQ((2 >= x).to_vector<bool>(), (Truth{true, true, false}));
}

TEST(PointwiseForms, bit_operators_and_the_remainder_read_as_in_python) {
  const Tensor x = tensor({12, 10}), y = tensor({10, 6});
  EXPECT_EQ((x & y).to_vector<int64_t>(), (Whole{8, 2}));
  EXPECT_EQ((x | y).to_vector<int64_t>(), (Whole{14, 14}));
  EXPECT_EQ((x ^ 15).to_vector<int64_t>(), (Whole{3, 5}));
  EXPECT_EQ((8 & x).to_vector<int64_t>(), (Whole{8, 8}));
  EXPECT_EQ((~x).to_vector<int64_t>(), (Whole{-13, -11}));
  EXPECT_EQ((x << 1).to_vector<int64_t>(), (Whole{24, 20}));
  EXPECT_EQ((x >> 1).to_vector<int64_t>(), (Whole{6, 5}));
  EXPECT_EQ((-x % 7).to_vector<int64_t>(), (Whole{2, 4}));
  EXPECT_EQ((!(x == 12)).to_vector<bool>(), (Truth{false, true}));
  EXPECT_EQ((~(x == 12)).to_vector<bool>(), (Truth{false, true}));
  EXPECT_EQ(((x > 11) | (y < 7)).to_vector<bool>(), (Truth{true, true}));
}

TEST(PointwiseForms, compound_bit_operators_write_in_place) {
  const Tensor x = tensor({12, 10}), same = x;
  x &= 14;
  x |= 1;
  x ^= tensor({0, 1});
  x <<= 2;
  x >>= 1;
  x %= 20;
  EXPECT_EQ(same.to_vector<int64_t>(), (Whole{6, 0}));
}

TEST(PointwiseForms, isclose_allclose_and_equal_follow_their_definitions) {
  const double inf = INFINITY, nan = NAN;
  const Tensor x = tensor({1.0, 100.0, inf, inf, nan, 0.0}), y = tensor({1.000001, 100.1, inf, -inf, nan, 1e-9});
  EXPECT_EQ(isclose(x, y).to_vector<bool>(), (Truth{true, false, true, false, false, true}));
  EXPECT_EQ(x.isclose(y, 1e-2, 0, true).to_vector<bool>(), (Truth{true, true, true, false, true, false}));
  EXPECT_EQ(isclose(x, y, 0, 0).to_vector<bool>(), (Truth{false, false, true, false, false, false}));
  EXPECT_EQ(isclose(tensor({10, 10}), tensor({11, 12}), 0.1, 0).to_vector<bool>(), (Truth{true, false}));
  EXPECT_EQ(isclose(tensor({true, false}), tensor({true, true})).to_vector<bool>(), (Truth{true, false}));
  EXPECT_TRUE(allclose(ones({2, 3}), ones({3}) + 1e-6));
  EXPECT_FALSE(ones({2}).allclose(tensor({1.0, 1.1})));
  EXPECT_TRUE(equal(ones({2, 3}), ones({2, 3})));
  EXPECT_TRUE(equal(empty({0, 3}), empty({0, 3})));
  EXPECT_FALSE(ones({2, 3}).equal(ones({3})));
  EXPECT_FALSE(equal(tensor({nan}), tensor({nan})));
  EXPECT_THROW(equal(ones({2}), ones({2}, {kF64})), DTypeError);
  EXPECT_THROW(allclose(ones({2}), ones({2}), -1), ValueError);
}

TEST(PointwiseForms, out_and_in_place_forms_with_coefficients_agree_with_the_functions) {
  const Tensor x = random_tensor({3, 5}, kF32, 1), y = random_tensor({5}, kF32, 2), out = empty({3, 5});
  EXPECT_TRUE(equal(add_out(out, x, y, 3), add(x, y, 3)));
  EXPECT_TRUE(equal(sub_out(out, x, y, 0.5), sub(x, y, 0.5)));
  EXPECT_TRUE(equal(div_out(out, x, y, "floor"), div(x, y, "floor")));
  EXPECT_TRUE(equal(leaky_relu_out(out, x, 0.2), leaky_relu(x, 0.2)));
  EXPECT_TRUE(equal(elu_out(out, x, 0.7), elu(x, 0.7)));
  EXPECT_TRUE(equal(softplus_out(out, x, 2.0, 1.0), softplus(x, 2.0, 1.0)));
  EXPECT_TRUE(equal(x.true_divide(y), x / y));
  const Tensor a = x.clone(), b = x.clone();
  EXPECT_TRUE(leaky_relu_(a, 0.2).is_same(a));
  EXPECT_TRUE(equal(a, leaky_relu(x, 0.2)));
  EXPECT_TRUE(elu_(b).is_same(b));
  EXPECT_TRUE(equal(b, elu(x)));
  const Tensor odd = tensor({NAN, INFINITY, -INFINITY, 1.0}), clean = empty({4}), self = odd.clone();
  EXPECT_EQ(nan_to_num_out(clean, odd, 1, 2, 3).to_vector<double>(), (std::vector<double>{1, 2, 3, 1}));
  EXPECT_TRUE(equal(self.nan_to_num_(), nan_to_num(odd)));
  EXPECT_EQ(nan_to_num_out(empty({2}), tensor({4, 5})).to_vector<double>(), (std::vector<double>{4, 5}));
}

}  // namespace
}  // namespace lorry::test
