#include "lorry/ops/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "lorry/formula/random.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/dtypes.h"

namespace lorry {
namespace {

using test::element;

TEST(Random, a_seed_repeats_its_sequence_and_every_draw_uses_one_offset) {
  Generator a(11), b(11);
  const auto first = randn({100}, {}, &a).to_vector<float>(), second = randn({100}, {}, &a).to_vector<float>();
  EXPECT_NE(first, second);
  EXPECT_EQ(randn({100}, {}, &b).to_vector<float>(), first);
  EXPECT_EQ(b.state().offset, 1u);
  randint(5, {3}, {kI64}, &b);
  rand({1'000'000}, {}, &b);
  EXPECT_EQ(b.state(), (Generator::State{11, 3}));
  b.set_state({11, 1});
  EXPECT_EQ(randn({100}, {}, &b).to_vector<float>(), second);
  a.manual_seed(12);
  EXPECT_NE(randn({100}, {}, &a).to_vector<float>(), first);
}

TEST(Random, the_default_generator_is_seeded_for_the_process) {
  manual_seed(4);
  const auto first = rand({10}).to_vector<float>();
  manual_seed(4);
  EXPECT_EQ(rand({10}).to_vector<float>(), first);
}

TEST(Random, an_element_depends_on_its_position_alone) {
  Generator generator(3);
  const auto draw = [&](const Dims& sizes) {
    generator.manual_seed(3);
    return rand(sizes, {}, &generator).to_vector<float>();
  };
  const auto many = draw({7, 1000});
  EXPECT_EQ(many, draw({7000}));
  const auto few = draw({10});
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_EQ(many[6], formula::unit_f32(formula::random_block({3, 0}, 1).word[2]));
  // In place on any strides: the row-major position counts.
  const Tensor transposed = zeros({1000, 7}).t();
  generator.manual_seed(3);
  transposed.uniform_(0, 1, &generator);
  EXPECT_EQ(transposed.to_vector<float>(), many);
}

TEST(Random, in_place_forms_stay_in_their_range_in_every_dtype) {
  for (const DType t : kDTypes) {
    const Tensor x = zeros({4097}, {t});
    const int64_t low = t == kBool || test::is_unsigned(t) ? 0 : -3, high = t == kBool ? 2 : 9;
    x.random_(low, high);
    std::set<double> seen;
    for (const double v : x.to_vector<double>()) seen.insert(v);
    EXPECT_EQ(seen.size(), static_cast<size_t>(high - low)) << name(t);
    EXPECT_EQ(*seen.begin(), low);
    EXPECT_EQ(*seen.rbegin(), high - 1);
    x.bernoulli_(0.25);
    double sum = 0;
    for (const double v : x.to_vector<double>()) {
      EXPECT_TRUE(v == 0 || v == 1);
      sum += v;
    }
    EXPECT_NEAR(sum / 4097, 0.25, 0.04);
    if (!is_floating(t)) continue;
    x.uniform_(-2, 1);
    for (const double v : x.to_vector<double>()) EXPECT_TRUE(v >= -2 && v < 1) << v;
    x.normal_(10, 0);
    for (const double v : x.to_vector<double>()) EXPECT_EQ(v, 10);
  }
}

TEST(Random, whole_numbers_are_uniform) {
  Generator generator(1);
  std::vector<double> count(10);
  for (const int64_t v : randint(10, {100'000}, {kI64}, &generator).to_vector<int64_t>())
    ++count[static_cast<size_t>(v)];
  double chi_squared = 0;
  for (const double c : count) chi_squared += (c - 10'000) * (c - 10'000) / 10'000;
  EXPECT_LT(chi_squared, 33);  // nine degrees of freedom: 1 in 10,000
  const auto all = randint(INT64_MIN, INT64_MAX, {64}, {kI64}, &generator).to_vector<int64_t>();
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 64u);
}

TEST(Random, permutations_contain_every_number_once_and_differ) {
  Generator generator(1);
  const auto a = randperm(1000, kCPU, &generator).to_vector<int64_t>(),
             b = randperm(1000, kCPU, &generator).to_vector<int64_t>();
  EXPECT_NE(a, b);
  EXPECT_EQ(std::set<int64_t>(a.begin(), a.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(a.begin(), a.end()), 999);
  EXPECT_EQ(randperm(0).numel(), 0);
  // Every order of three is equally likely.
  std::map<std::vector<int64_t>, int> orders;
  for (int i = 0; i < 6000; ++i) ++orders[randperm(3, kCPU, &generator).to_vector<int64_t>()];
  EXPECT_EQ(orders.size(), 6u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 150);
}

TEST(Random, bernoulli_follows_each_probability) {
  const Tensor p = tensor({0.0, 0.3, 1.0}).unsqueeze(1).expand({3, 10'000});
  const Tensor coins = bernoulli(p);
  EXPECT_EQ(coins.dtype(), kF32);
  EXPECT_EQ(coins[0].sum().item<double>(), 0);
  EXPECT_NEAR(coins[1].sum().item<double>(), 3000, 250);
  EXPECT_EQ(coins[2].sum().item<double>(), 10'000);
  EXPECT_THROW_IN_TIME(bernoulli(tensor({0.5, 1.5})), ValueError);
  EXPECT_THROW_IN_TIME(bernoulli(tensor({NAN})), ValueError);
  EXPECT_THROW(bernoulli(tensor({1})), DTypeError);
  EXPECT_THROW(zeros({2}).bernoulli_(-0.1), ValueError);
}

TEST(Random, multinomial_draws_rows_in_proportion) {
  Generator generator(2);
  const Tensor weights = tensor({{1.0, 0.0, 3.0}, {0.0, 5.0, 0.0}});
  const Tensor drawn = weights.multinomial(20'000, true, &generator);
  EXPECT_EQ(drawn.sizes(), (Dims{2, 20'000}));
  std::vector<double> count(3);
  for (const int64_t c : drawn[0].to_vector<int64_t>()) ++count[static_cast<size_t>(c)];
  EXPECT_EQ(count[1], 0);
  EXPECT_NEAR(count[2], 15'000, 400);
  for (const int64_t c : drawn[1].to_vector<int64_t>()) EXPECT_EQ(c, 1);
  const auto all = tensor({0.1, 0.2, 0.3, 0.4}).multinomial(4, false, &generator).to_vector<int64_t>();
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 4u);
  EXPECT_THROW(weights.multinomial(2), ValueError);  // the second row has one positive weight
  EXPECT_THROW(tensor({0.0, 0.0}).multinomial(1), ValueError);
  EXPECT_THROW(tensor({-1.0, 2.0}).multinomial(1), ValueError);
  EXPECT_THROW(tensor({NAN, 2.0}).multinomial(1), ValueError);
  EXPECT_THROW(tensor({HUGE_VAL, 2.0}).multinomial(1), ValueError);
  EXPECT_THROW(tensor({1.0}).multinomial(0), ValueError);
  EXPECT_THROW(tensor({1}).multinomial(1), DTypeError);
  EXPECT_THROW(ones({2, 2, 2}).multinomial(1), ShapeError);
}

TEST(Random, wrong_arguments_are_refused) {
  EXPECT_THROW(rand({2}, {kI64}), DTypeError);
  EXPECT_THROW(randn({2}, {kBool}), DTypeError);
  EXPECT_THROW(randint(0, 0, {2}), ValueError);
  EXPECT_THROW(randint(0, 257, {2}, {kU8}), ValueError);
  EXPECT_THROW(randint(-129, 0, {2}, {kI8}), ValueError);
  EXPECT_THROW(zeros({2}, {kF16}).random_(0, 5000), ValueError);
  EXPECT_THROW(randperm(-1), ValueError);
  EXPECT_THROW(zeros({2}).uniform_(1, 0), ValueError);
  EXPECT_THROW(zeros({2}).uniform_(0, NAN), ValueError);
  EXPECT_THROW(zeros({2}).normal_(0, -1), ValueError);
  EXPECT_THROW(zeros({2}, {kI64}).normal_(), DTypeError);
  EXPECT_THROW(zeros({1}).expand({3}).uniform_(), ShapeError);
}

TEST(Random, like_another_tensor_but_of_a_given_dtype) {
  const Tensor x = zeros({4, 5}, {kF64});
  EXPECT_EQ(rand_like(x).dtype(), kF64);
  EXPECT_EQ(rand_like(x, kF32).dtype(), kF32);
  EXPECT_EQ(randn_like(x, kBF16).sizes(), x.sizes());
  EXPECT_EQ(randn_like(x, kBF16).dtype(), kBF16);
  const Tensor whole = randint_like(x, 3, kI64);
  EXPECT_EQ(whole.dtype(), kI64);
  EXPECT_TRUE(((whole >= 0) & (whole < 3)).all().item<bool>());
  const Tensor between = randint_like(x, 7, 9);
  EXPECT_TRUE(((between == 7) | (between == 8)).all().item<bool>());
  EXPECT_THROW(rand_like(Tensor()), ValueError);
}

}  // namespace
}  // namespace lorry
