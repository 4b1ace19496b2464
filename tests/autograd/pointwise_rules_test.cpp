// Numerical first and second derivatives of every differentiable pointwise row, with broadcast operands, and the values
// chosen where there is no derivative.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "lorry/autograd/engine.h"
#include "lorry/autograd/rules.h"
#include "lorry/formula/pointwise.h"
#include "lorry/ops/ops.h"
#include "tests/support/gradcheck.h"

namespace lorry::test {
namespace {

using Tensors = std::vector<Tensor>;
using Call = Tensor (*)(const Tensors&);

/// How to call a differentiable row, as its users do. Rows with signatures of their own are listed; a new one needs a
/// line.
Call function_of(Op op) {
  static const std::map<Op, Call> kCalls = {
#define LORRY_UNARY(name, Formula, result, domain) {Op::name, [](const Tensors& t) { return lorry::name(t[0]); }},
#define LORRY_BINARY(name, Formula, result, domain) \
  {Op::name, [](const Tensors& t) { return lorry::name(t[0], t[1]); }},
#include "lorry/formula/pointwise.def"
      {Op::add_scaled, [](const Tensors& t) { return add(t[0], t[1], 1.75); }},
      {Op::where, [](const Tensors& t) { return where(gt(t[0], 0).detach(), t[1], t[2]); }},
      {Op::clamp, [](const Tensors& t) { return clamp(t[0], t[1], t[2]); }},
      {Op::lerp, [](const Tensors& t) { return lerp(t[0], t[1], t[2]); }},
      {Op::addcmul, [](const Tensors& t) { return addcmul(t[0], t[1], t[2], 0.7); }},
      {Op::addcdiv, [](const Tensors& t) { return addcdiv(t[0], t[1], t[2], 0.7); }},
      {Op::leaky_relu, [](const Tensors& t) { return leaky_relu(t[0], 0.2); }},
      {Op::elu, [](const Tensors& t) { return elu(t[0], 1.3); }},
      {Op::softplus, [](const Tensors& t) { return softplus(t[0], 1.5, 2.0); }},
      {Op::nan_to_num, [](const Tensors& t) { return nan_to_num(t[0]); }},
  };
  const auto at = kCalls.find(op);
  return at == kCalls.end() ? nullptr : at->second;
}

/// The rows' in-place forms, applied to a copy of the first operand.
Call in_place_of(Op op) {
  static const std::map<Op, Call> kCalls = {
#define LORRY_UNARY(name, Formula, result, domain) \
  {Op::name, [](const Tensors& t) { return Tensor(t[0].clone().name##_()); }},
#define LORRY_BINARY(name, Formula, result, domain) \
  {Op::name, [](const Tensors& t) { return Tensor(t[0].clone().name##_(t[1])); }},
#include "lorry/formula/pointwise.def"
      {Op::add_scaled, [](const Tensors& t) { return Tensor(t[0].clone().add_(t[1], 1.75)); }},
      {Op::clamp, [](const Tensors& t) { return Tensor(t[0].clone().clamp_(t[1], t[2])); }},
      {Op::lerp, [](const Tensors& t) { return Tensor(t[0].clone().lerp_(t[1], t[2])); }},
      {Op::addcmul, [](const Tensors& t) { return Tensor(t[0].clone().addcmul_(t[1], t[2], 0.7)); }},
      {Op::addcdiv, [](const Tensors& t) { return Tensor(t[0].clone().addcdiv_(t[1], t[2], 0.7)); }},
  };
  const auto at = kCalls.find(op);
  return at == kCalls.end() ? nullptr : at->second;
}

struct Interval {
  double low, high;
};
/// Where operand k of a row is smooth (almost everywhere, for steps).
Interval domain_of(Op op, int k) {
  switch (op) {
    case Op::sqrt:
    case Op::rsqrt:
    case Op::reciprocal:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::pow:
      return {0.4, 2.5};
    case Op::log1p:
      return {-0.6, 2};
    case Op::asin:
    case Op::acos:
      return {-0.9, 0.9};
    case Op::tan:
      return {-1.2, 1.2};
    case Op::div:
    case Op::floor_divide:
    case Op::trunc_divide:
    case Op::remainder:
    case Op::fmod:
    case Op::atan2:
      return k == 1 ? Interval{0.6, 2.3} : Interval{-4, 4};
    case Op::clamp:
      return k == 0 ? Interval{-2, 2} : k == 1 ? Interval{-1.2, -0.4} : Interval{0.4, 1.2};
    case Op::lerp:
      return k == 2 ? Interval{0.05, 0.95} : Interval{-2, 2};
    case Op::addcdiv:
      return k == 2 ? Interval{0.6, 2.3} : Interval{-2, 2};
    default:
      return {-2, 2};
  }
}

/// Those before a row's coefficients, which stand behind the operands that decide the type.
int tensor_operands(Op op) {
  const PointwiseRow& row = kPointwise[static_cast<int>(op)];
  return row.deciding.begin == 0 ? row.deciding.end : row.arity;
}

Tensor leaf(const Dims& sizes, Interval range, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> draw(range.low, range.high);
  std::vector<double> values(static_cast<size_t>(checked_numel(sizes)));
  for (double& v : values) v = draw(random);
  return from_data(values, sizes).requires_grad_();
}

Tensors leaves(Op op, const std::vector<Dims>& shapes) {
  Tensors inputs;
  for (int k = 0; k < tensor_operands(op); ++k)
    inputs.push_back(
        leaf(shapes[static_cast<size_t>(k) % shapes.size()], domain_of(op, k), 100 + static_cast<uint64_t>(k)));
  return inputs;
}

class PointwiseGradients : public testing::TestWithParam<int> {
 protected:
  Op op() const { return static_cast<Op>(GetParam()); }
};
class PointwiseInPlaceGradients : public PointwiseGradients {};

TEST_P(PointwiseGradients, agree_with_central_differences) {
  ASSERT_NE(function_of(op()), nullptr) << "a differentiable row needs a line in this file";
  for (const std::vector<Dims>& shapes :
       {std::vector<Dims>{{3, 4}}, {{3, 4}, {4}, {3, 1}}, {{4}, {3, 4}, {}}, {{1, 4}, {3, 1}, {2, 1, 1}}})
    EXPECT_TRUE(gradcheck(function_of(op()), leaves(op(), shapes)));
}

TEST_P(PointwiseGradients, of_gradients_agree_with_central_differences) {
  for (const std::vector<Dims>& shapes : {std::vector<Dims>{{2, 3}}, {{2, 3}, {3}, {2, 1}}})
    EXPECT_TRUE(gradgradcheck(function_of(op()), leaves(op(), shapes), {.relative = 1e-4, .absolute = 1e-6}));
}

TEST_P(PointwiseInPlaceGradients, agree_with_central_differences) {
  EXPECT_TRUE(gradcheck(in_place_of(op()), leaves(op(), {{3, 4}, {4}, {3, 1}})));
}

TEST_P(PointwiseInPlaceGradients, of_gradients_agree_with_central_differences) {
  EXPECT_TRUE(
      gradgradcheck(in_place_of(op()), leaves(op(), {{2, 3}, {3}, {2, 1}}), {.relative = 1e-4, .absolute = 1e-6}));
}

template <class Predicate>
auto differentiable_rows(Predicate&& predicate) {
  std::vector<int> chosen;
  for (int p = 0; p < kPointwiseCount; ++p)
    if (differentiable(kPointwise[p].result, kPointwise[p].domain) && predicate(static_cast<Op>(p)))
      chosen.push_back(p);
  return testing::ValuesIn(chosen);
}
const auto kRowName = [](const auto& info) { return std::string(kPointwise[info.param].name); };
INSTANTIATE_TEST_SUITE_P(Rows, PointwiseGradients, differentiable_rows([](Op) { return true; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, PointwiseInPlaceGradients,
                         differentiable_rows([](Op op) { return in_place_of(op) != nullptr; }), kRowName);

TEST(PointwiseRules, copies_pass_gradients_on) {
  const Tensors x = {leaf({3, 4}, {-2, 2}, 1), leaf({4}, {-2, 2}, 2)};
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return t[0].clone() * 2; }, x));
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return t[0].to(kF32).to(kF64); }, {leaf({2}, {0.5, 2}, 1)},
                        {.step = 1e-2, .relative = 1e-4}));
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return (t[0] * 2).copy_(t[1]) * t[0]; }, x));
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return (t[0] * 2).fill_(3) * t[0]; }, x));
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return t[0].masked_fill(gt(t[0].detach(), 0), 3) * t[0]; }, x));
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return (t[0] * 1).masked_fill_(gt(t[0].detach(), 0), 3) * t[0]; }, x));
}

/// d f / d x at one point.
template <class F>
std::vector<double> slopes(F&& f, const std::vector<double>& at) {
  const Tensor x = from_data(at).requires_grad_();
  f(x).backward(empty_like(x).fill_(1));
  return x.grad().template to_vector<double>();
}

TEST(PointwiseRules, where_there_is_no_derivative_the_value_is_pytorchs) {
  using V = std::vector<double>;
  EXPECT_EQ(slopes([](const Tensor& x) { return abs(x); }, {-2, 0, 3}), (V{-1, 0, 1}));
  EXPECT_EQ(slopes([](const Tensor& x) { return relu(x); }, {-2, 0, 3}), (V{0, 0, 1}));
  EXPECT_EQ(slopes([](const Tensor& x) { return clamp(x, -1, 1); }, {-2, -1, 0, 1, 2}), (V{0, 1, 1, 1, 0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return clamp_min(x, 0); }, {-1, 0, 1}), (V{0, 1, 1}));
  EXPECT_EQ(slopes([](const Tensor& x) { return maximum(x, 0); }, {-1, 0, 1}), (V{0, 0.5, 1}));
  EXPECT_EQ(slopes([](const Tensor& x) { return minimum(x, 0); }, {-1, 0, 1}), (V{1, 0.5, 0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return maximum(x, x); }, {2}), (V{1}));
  EXPECT_EQ(slopes([](const Tensor& x) { return leaky_relu(x, 0.5); }, {0}), (V{0.5}));
  EXPECT_EQ(slopes([](const Tensor& x) { return round(x) + floor(x) + sign(x); }, {0.4, -1.7}), (V{0, 0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return nan_to_num(x); }, {NAN, INFINITY, 1}), (V{0, 0, 1}));
}

TEST(PointwiseRules, powers_of_zero_have_finite_gradients) {
  using V = std::vector<double>;
  EXPECT_EQ(slopes([](const Tensor& x) { return pow(x, 0); }, {0, 2}), (V{0, 0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return pow(x, 1); }, {0, 2}), (V{1, 1}));
  const V square = slopes([](const Tensor& x) { return pow(x, 2); }, {0, -3});
  EXPECT_EQ(square[0], 0);
  EXPECT_DOUBLE_EQ(square[1], -6);
  EXPECT_EQ(slopes([](const Tensor& x) { return pow(0, x); }, {0, 1, 2}), (V{0, 0, 0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return pow(1, x); }, {-1, 5}), (V{0, 0}));
}

TEST(PointwiseRules, a_branch_that_is_not_taken_passes_no_nan) {
  const Tensor x = empty({2}, {kF64}).fill_(0).requires_grad_();
  where(gt(x, 0), log(clamp_min(x, 1e-300)), x).backward(empty({2}, {kF64}).fill_(1));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(PointwiseRules, gradients_have_the_types_of_their_inputs) {
  const Tensor half = empty({3}, {kF16}).fill_(2).requires_grad_(),
               single = empty({3}, {kF32}).fill_(3).requires_grad_();
  (half * single).backward(empty({3}, {kF32}).fill_(1));
  EXPECT_EQ(half.grad().dtype(), kF16);
  EXPECT_EQ(single.grad().dtype(), kF32);
  EXPECT_EQ(half.grad().to_vector<double>(), (std::vector<double>{3, 3, 3}));
}

TEST(PointwiseRules, a_16_bit_base_or_ordinate_meets_f32_before_its_derivative_is_taken) {
  const Tensor low = tensor({1.5, 2.3, 0.7}).to(kBF16), wide = low.to(kF32);
  const std::function<Tensor(const Tensor&, const Tensor&)> functions[] = {
      [](const Tensor& x, const Tensor& y) { return pow(x, y); },
      [](const Tensor& x, const Tensor& y) { return atan2(x, y); },
      [](const Tensor& x, const Tensor& y) { return atan2(y, x); },
  };
  for (const auto& f : functions) {
    const Tensor a = tensor({2.3, 1.1, -3.7}).requires_grad_(), b = tensor({2.3, 1.1, -3.7}).requires_grad_();
    f(low, a).sum().backward();
    f(wide, b).sum().backward();
    EXPECT_EQ(a.grad().to_vector<double>(), b.grad().to_vector<double>());
  }
}

TEST(PointwiseRules, results_of_comparisons_carry_no_gradient) {
  const Tensor x = empty({3}, {kF64}).fill_(2).requires_grad_();
  EXPECT_FALSE(gt(x, 1).requires_grad());
  EXPECT_FALSE(isnan(x).requires_grad());
}

TEST(PointwiseRules, an_out_form_refuses_operands_that_require_gradients) {
  const Tensor x = empty({3}).fill_(1).requires_grad_();
  EXPECT_THROW(exp_out(empty({3}), x), GradError);
  const NoGrad quiet;
  EXPECT_NO_THROW(exp_out(empty({3}), x));
}

TEST(PointwiseRules, every_differentiable_row_has_a_rule_and_no_other) {
  for (int p = 0; p < kPointwiseCount; ++p)
    EXPECT_EQ(autograd::find_rule(static_cast<Op>(p)) != nullptr,
              differentiable(kPointwise[p].result, kPointwise[p].domain))
        << kPointwise[p].name;
}

}  // namespace
}  // namespace lorry::test
