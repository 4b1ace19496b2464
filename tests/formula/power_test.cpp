// Powers by + - * / fma alone, against the C library's long double.

#include "lorry/formula/power.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "lorry/formula/nadam.h"

namespace lorry::formula {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  double base, exponent;
};

/// All sizes of base and result, bases near 1, and those of optimizers.
Case draw(std::mt19937_64& random, int kind) {
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  };
  switch (kind % 5) {
    case 0: {
      const double power = std::ldexp(uniform(1, 2), static_cast<int>(uniform(-1000, 1000)));
      return {power, uniform(-1020, 1020) / std::fabs(std::log2(power))};
    }
    case 1:
      return {uniform(0.5, 2), uniform(-900, 900)};
    case 2:
      return {1 + uniform(0, 1e-6), uniform(0, 1e6)};
    case 3:
      return {1 + std::ldexp(uniform(-1, 1), static_cast<int>(uniform(-50, 0))),
              std::ldexp(uniform(0, 1), static_cast<int>(uniform(0, 40)))};
    default:
      return {uniform(0, 1), uniform(0, 3)};
  }
}

TEST(Power, is_within_0_53_units_in_the_last_place) {
  if (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "long double is no more exact than double";
  std::mt19937_64 random(11);
  for (int i = 0; i < 200'000; ++i) {
    const auto [base, exponent] = draw(random, i);
    const long double exact = std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
    if (!(base > 0) || exact > 1.7e308L || exact < 2.3e-308L) continue;
    const double ours = power(base, exponent), near = static_cast<double>(exact),
                 unit = std::nextafter(near, kInf) - near;
    // The library's own rounding is another 2^-11 of a unit or so.
    ASSERT_LE(std::fabs(static_cast<double>(ours - exact)), 0.53 * unit)
        << std::hexfloat << base << " to the " << exponent;
  }
}

TEST(Power, logarithms_are_exact_to_what_a_long_double_can_tell) {
  if (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "long double is no more exact than double";
  std::mt19937_64 random(12);
  for (int i = 0; i < 200'000; ++i) {
    const double x = draw(random, i).base;
    if (!(x > 0)) continue;
    const Logarithm log = logarithm(x);
    const long double exact = std::log(static_cast<long double>(x)), ours = static_cast<long double>(log.hi) + log.lo;
    ASSERT_LE(std::fabs(ours - exact), 0x1p-62L * std::fabs(exact)) << std::hexfloat << x;
    ASSERT_EQ(log.hi + log.lo, log.hi);
  }
}

TEST(Power, ends_and_exact_results) {
  EXPECT_EQ(power(2, 1023), 0x1p1023);
  EXPECT_EQ(power(2, 1024), kInf);
  EXPECT_EQ(power(2, -1022), 0x1p-1022);
  EXPECT_EQ(power(2, -1074), 0x1p-1074);
  EXPECT_EQ(power(2, -1080), 0);
  EXPECT_EQ(power(0x1p-1074, 1), 0x1p-1074);
  EXPECT_EQ(power(0x1p-1070, -0.5), 0x1p535);
  EXPECT_EQ(power(std::numeric_limits<double>::max(), 1), std::numeric_limits<double>::max());
  for (const double x : {1e-300, 0.3, 1.0, 7.0, 1e300}) {
    EXPECT_EQ(power(x, 0), 1);
    EXPECT_EQ(power(x, 1), x);
    EXPECT_EQ(power(1, x), 1);
  }
  for (const double x : {0.0, -1.0, kInf, kNaN}) EXPECT_TRUE(std::isnan(power(x, 2)));
  EXPECT_EQ(power(0.75, 1e300), 0);
  EXPECT_EQ(power(0.75, -1e300), kInf);
}

TEST(Power, the_bits_are_the_same_everywhere) {
  std::mt19937_64 random(13);
  uint64_t digest = 0xcbf29ce484222325;
  for (int i = 0; i < 10'000; ++i) {
    const double base = 0.5 + static_cast<double>(random() >> 11) * 0x1p-53,
                 exponent = static_cast<double>(random() >> 11) * 0x1p-48 - 16;
    digest = (digest ^ std::bit_cast<uint64_t>(power(base, exponent))) * 0x100000001b3;
  }
  EXPECT_EQ(digest, 11174357782736883055u);
}

TEST(Power, the_stored_logarithm_is_that_of_0_96) {
  EXPECT_EQ(NAdam::kLogOf096.hi, logarithm(0.96).hi);
  EXPECT_NEAR(NAdam::kLogOf096.lo, logarithm(0.96).lo, 0x1p-90);
}

}  // namespace
}  // namespace lorry::formula
