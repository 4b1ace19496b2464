#include "lorry/kernels/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/backend.h"
#include "tests/support/scale.h"

namespace lorry::kernels {
namespace {

constexpr RandomKey kKey{0x0123456789abcdef, 42};

const RandomKernels& random() { return *backend(kCPU).random; }

template <class T>
Array array(std::vector<T>& values) {
  return {values.data(), dtype_of<T>, Layout::contiguous({static_cast<int64_t>(values.size())})};
}

uint32_t word(int64_t i) { return formula::random_block(kKey, static_cast<uint64_t>(i) / 4).word[i % 4]; }
uint64_t word64(int64_t i) { return static_cast<uint64_t>(word(2 * i + 1)) << 32 | word(2 * i); }

template <class T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  if (!a.empty()) {
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0);
  }
}

// Sizes around a tile of 1,024 words, odd ones among them.
const int64_t kSizes[] = {0, 1, 3, 4, 511, 512, 1023, 1024, 1025, 10007};

TEST(RandomKernels, uniforms_are_the_scalar_formula_of_their_words_to_the_bit) {
  for (const int64_t n : kSizes) {
    std::vector<float> f32(static_cast<size_t>(n)), expected32;
    std::vector<double> f64(static_cast<size_t>(n)), expected64;
    random().uniform(array(f32), kKey, 0, 1, {});
    random().uniform(array(f64), kKey, 0, 1, {});
    for (int64_t i = 0; i < n; ++i) {
      expected32.push_back(formula::unit_f32(word(i)));
      expected64.push_back(formula::unit_f64(word(2 * i), word(2 * i + 1)));
    }
    expect_same_bits(f32, expected32);
    expect_same_bits(f64, expected64);
  }
}

TEST(RandomKernels, normals_are_the_scalar_formula_of_their_words_to_the_bit) {
  for (const int64_t n : kSizes) {
    std::vector<float> f32(static_cast<size_t>(n)), expected32;
    std::vector<double> f64(static_cast<size_t>(n)), expected64;
    random().normal(array(f32), kKey, 2, 3, {});
    random().normal(array(f64), kKey, 2, 3, {});
    for (int64_t i = 0; i < n; ++i) {
      const int64_t even = i & ~int64_t{1};
      const auto z32 = formula::normal_pair(word(even), word(even + 1), 2.0f, 3.0f);
      const auto z64 = formula::normal_pair(word64(even), word64(even + 1), 2.0, 3.0);
      expected32.push_back(i == even ? z32.first : z32.second);
      expected64.push_back(i == even ? z64.first : z64.second);
    }
    expect_same_bits(f32, expected32);
    expect_same_bits(f64, expected64);
  }
}

TEST(RandomKernels, integers_scale_their_64_bit_word_into_the_range) {
  std::vector<int64_t> wide(5000);
  std::vector<uint8_t> narrow(5000);
  random().integers(array(wide), kKey, -7, 1000, {});
  random().integers(array(narrow), kKey, 10, 6, {});
  for (size_t i = 0; i < wide.size(); ++i) {
    const auto w = static_cast<unsigned __int128>(word64(static_cast<int64_t>(i)));
    ASSERT_EQ(wide[i], -7 + static_cast<int64_t>(w * 1000 >> 64));
    ASSERT_EQ(narrow[i], 10 + static_cast<int64_t>(w * 6 >> 64));
  }
}

TEST(RandomKernels, coins_compare_their_word_with_the_probability) {
  for (const double p : {0.0, 1e-9, 0.25, 0.5, 0.9, 1 - 1e-12, 1.0}) {
    std::vector<uint8_t> coins(4099);
    random().bernoulli(array(coins), kKey, p, {});
    for (size_t i = 0; i < coins.size(); ++i)
      ASSERT_EQ(coins[i] != 0, word(static_cast<int64_t>(i)) < std::ceil(p * 0x1p32)) << "p = " << p << " at " << i;
  }
}

TEST(RandomKernels, a_probability_outside_zero_to_one_writes_nothing) {
  std::vector<float> out(3, 5.0f), p = {0.5f, NAN, 0.5f};
  EXPECT_FALSE(random().bernoulli_each(array(out), array(p), kKey, {}));
  EXPECT_EQ(out, std::vector<float>(3, 5.0f));
  p[1] = 1.0f;
  EXPECT_TRUE(random().bernoulli_each(array(out), array(p), kKey, {}));
  EXPECT_EQ(out[1], 1.0f);
}

TEST(RandomKernels, dropout_keeps_where_its_mask_says_and_scales) {
  std::vector<float> x(5001), out(x.size());
  std::iota(x.begin(), x.end(), 1.0f);
  std::vector<uint8_t> mask(x.size()), coins(x.size());
  random().dropout(array(out), array(mask), array(x), kKey, 0.8, 1.25, {});
  random().bernoulli(array(coins), kKey, 0.8, {});
  EXPECT_EQ(mask, coins);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], mask[i] ? x[i] * 1.25f : 0.0f);
}

TEST(RandomKernels, a_permutation_sorts_the_numbers_by_their_64_bit_words) {
  for (const int64_t n : {0, 1, 2, 3, 63, 64, 65, 511, 512, 513, 1000, 10007, 70001}) {
    std::vector<int64_t> permuted(static_cast<size_t>(n)), order(permuted.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [](int64_t i) { return std::pair(word64(i), i); });
    random().permutation(array(permuted), kKey, {});
    expect_same_bits(permuted, order);
  }
}

TEST(RandomKernels, the_number_of_threads_changes_no_bit) {
  const int before = lorry::cpu::threads();
  std::vector<float> reference(200'003);
  std::vector<int64_t> order(150'001);
  for (const int threads : {1, 2, 3, 7}) {
    lorry::cpu::set_threads(threads);
    std::vector<float> again(reference.size());
    std::vector<int64_t> permuted(order.size());
    random().normal(array(again), kKey, 0, 1, {});
    random().permutation(array(permuted), kKey, {});
    if (threads == 1) reference = again, order = permuted;
    expect_same_bits(again, reference);
    expect_same_bits(permuted, order);
  }
  lorry::cpu::set_threads(before);
}

TEST(RandomKernels, half_precision_uniforms_never_reach_one) {
  std::vector<Float16> f16(300'000);
  std::vector<BFloat16> bf16(f16.size());
  random().uniform(array(f16), kKey, 0, 1, {});
  random().uniform(array(bf16), kKey, 0, 1, {});
  double sum16 = 0, sum_b16 = 0;
  for (size_t i = 0; i < f16.size(); ++i) {
    ASSERT_LT(static_cast<float>(f16[i]), 1.0f);
    ASSERT_LT(static_cast<float>(bf16[i]), 1.0f);
    sum16 += static_cast<float>(f16[i]);
    sum_b16 += static_cast<float>(bf16[i]);
  }
  const auto n = static_cast<double>(f16.size());
  EXPECT_NEAR(sum16 / n, 0.5 - 0x1p-12, 0.003);
  EXPECT_NEAR(sum_b16 / n, 0.5 - 0x1p-9, 0.003);
}

TEST(RandomKernels, normals_have_the_moments_of_a_normal_distribution) {
  const size_t n = 1 << 20;
  std::vector<float> f32(n);
  std::vector<double> f64(n);
  random().normal(array(f32), kKey, 0, 1, {});
  random().normal(array(f64), kKey, 0, 1, {});
  const auto expect_moments = [&](const auto& z) {
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0;
    for (size_t i = 0; i < n; ++i) {
      const double x = z[i];
      m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
      if (i > 0) neighbours += x * z[i - 1];
    }
    // Five standard deviations of each estimate.
    const double sigma = 5 / std::sqrt(static_cast<double>(n));
    EXPECT_NEAR(m1 / n, 0, sigma);
    EXPECT_NEAR(m2 / n, 1, sigma * std::sqrt(2.0));
    EXPECT_NEAR(m3 / n, 0, sigma * std::sqrt(15.0));
    EXPECT_NEAR(m4 / n, 3, sigma * std::sqrt(96.0));
    EXPECT_NEAR(neighbours / n, 0, sigma);
  };
  expect_moments(f32);
  expect_moments(f64);
}

TEST(RandomKernels, normals_follow_the_normal_distribution_function_out_to_its_tails) {
  const auto n = static_cast<size_t>(test::scaled(1 << 20));
  const double root = std::sqrt(static_cast<double>(n));
  const auto distribution = [](double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); };
  const auto check = [&](auto z) {
    // The two of a pair share a radius and an angle, yet their squares must not be correlated, nor their signs.
    double squares = 0, signs = 0;
    for (size_t i = 0; i < n; i += 2) {
      squares += (z[i] * z[i] - 1) * (z[i + 1] * z[i + 1] - 1);
      signs += std::copysign(1.0, z[i]) * std::copysign(1.0, z[i + 1]);
    }
    const double pairs = static_cast<double>(n) / 2;
    EXPECT_NEAR(squares / pairs, 0, 5 * 2 / std::sqrt(pairs));
    EXPECT_NEAR(signs / pairs, 0, 5 / std::sqrt(pairs));
    std::sort(z.begin(), z.end());
    double apart = 0;
    for (size_t i = 0; i < n; ++i) {
      const double p = distribution(z[i]), rank = static_cast<double>(i) / static_cast<double>(n);
      apart = std::max({apart, p - rank, rank + 1 / static_cast<double>(n) - p});
    }
    EXPECT_LT(apart * root, 1.95) << "Kolmogorov and Smirnov's statistic exceeds this once in a thousand draws";
    for (const double limit : {-4.0, -3.0, 3.0, 4.0}) {
      const double expected = distribution(-std::fabs(limit)) * static_cast<double>(n);
      const auto beyond = limit < 0 ? std::lower_bound(z.begin(), z.end(), limit) - z.begin()
                                    : z.end() - std::upper_bound(z.begin(), z.end(), limit);
      EXPECT_NEAR(static_cast<double>(beyond), expected, 5 * std::sqrt(expected)) << "beyond " << limit;
    }
  };
  std::vector<float> f32(n);
  std::vector<double> f64(n);
  random().normal(array(f32), kKey, 0, 1, {});
  random().normal(array(f64), kKey, 0, 1, {});
  check(std::vector<double>(f32.begin(), f32.end()));
  check(f64);
}

TEST(RandomKernels, multinomial_draws_in_proportion_and_never_a_zero_weight) {
  std::vector<double> weights = {1, 0, 3, 6};
  const int64_t draws = 40'000;
  for (const bool replacement : {true, false}) {
    // Without replacement only the first column of each row follows the weights.
    const int64_t rows = replacement ? 1 : draws, columns = replacement ? draws : 3;
    std::vector<double> all;
    for (int64_t r = 0; r < rows; ++r) all.insert(all.end(), weights.begin(), weights.end());
    std::vector<int64_t> out(static_cast<size_t>(rows * columns));
    random().multinomial({out.data(), kI64, Layout::contiguous({rows, columns})},
                         {all.data(), kF64, Layout::contiguous({rows, 4})}, replacement, kKey, {});
    std::vector<double> count(4);
    for (int64_t i = 0; i < draws; ++i)
      ++count[static_cast<size_t>(out[static_cast<size_t>(replacement ? i : i * columns)])];
    EXPECT_EQ(count[1], 0);
    for (size_t c = 0; c < 4; ++c)
      EXPECT_NEAR(count[c] / static_cast<double>(draws), weights[c] / 10, 0.0125) << "column " << c;
    if (!replacement)
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t* row = &out[static_cast<size_t>(r * columns)];
        ASSERT_EQ((1 << row[0]) | (1 << row[1]) | (1 << row[2]), 0b1101);
      }
  }
}

}  // namespace
}  // namespace lorry::kernels
