#include "lorry/formula/codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace lorry::formula {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNotANumber = std::numeric_limits<float>::quiet_NaN();

/// The number of a code by the specification's definition, in doubles.
double number_of(uint32_t code, int exponent_bits, bool infinities) {
  const int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1)),
            mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
  const double sign = code & 0x80 ? -1 : 1, part = std::ldexp(mantissa, -mantissa_bits);
  if (infinities && exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * kInfinity : kNotANumber;
  if (!infinities && (code & 0x7f) == 0x7f) return kNotANumber;
  return sign * (exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias));
}

template <class Format>
void expect_numbers(int exponent_bits, bool infinities) {
  for (uint32_t code = 0; code < 256; ++code) {
    const double want = number_of(code, exponent_bits, infinities), got = Format::decode(code);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << code;
      EXPECT_EQ(Format::encode(static_cast<float>(got)) & 0x7f, 0x7fu) << code;
      continue;
    }
    EXPECT_EQ(got, want) << code;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
    EXPECT_EQ(Format::encode(static_cast<float>(got)), code) << code;
  }
}

TEST(Codes, of_8_bit_floats_are_those_of_the_specification) {
  expect_numbers<E4M3>(4, false);
  expect_numbers<E5M2>(5, true);
}

/// The code nearest to a value, of two equally near the even one; the largest number's beyond it.
template <class Format>
uint32_t nearest(double value, uint32_t largest) {
  uint32_t best = 0;
  const auto distance = [&](uint32_t code) {
    return std::fabs(static_cast<double>(Format::decode(code)) - std::fabs(value));
  };
  for (uint32_t code = 1; code <= largest; ++code)
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  return best | (std::signbit(value) ? 0x80 : 0);
}

template <class Format>
void expect_nearest(uint32_t largest, float end) {
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!(std::fabs(value) < end)) continue;
    ASSERT_EQ(Format::encode(value), nearest<Format>(value, largest)) << value;
  }
  // around every middle of two numbers
  for (uint32_t code = 0; code < largest; ++code) {
    const float middle = (Format::decode(code) + Format::decode(code + 1)) / 2;
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInfinity), -middle})
      ASSERT_EQ(Format::encode(value), nearest<Format>(value, largest)) << value;
  }
}

TEST(Codes, of_8_bit_floats_are_the_nearest_and_of_two_the_even_one) {
  expect_nearest<E4M3>(0x7e, kInfinity);
  expect_nearest<E5M2>(0x7b, 61440);
}

TEST(Codes, what_8_bit_floats_do_not_reach_is_the_largest_or_infinite) {
  for (const float value : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(E4M3::encode(value), 0x7eu) << value;
    EXPECT_EQ(E4M3::encode(-value), 0xfeu) << value;
  }
  EXPECT_EQ(E5M2::encode(std::nextafter(61440.0f, 0.0f)), 0x7bu);
  for (const float value : {61440.0f, 65536.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(E5M2::encode(value), 0x7cu) << value;
    EXPECT_EQ(E5M2::encode(-value), 0xfcu) << value;
  }
  for (const float value : {1e-45f, 1e-38f, 0x1p-11f}) EXPECT_EQ(E4M3::encode(-value), 0x80u) << value;
}

TEST(Codes, of_int8_round_to_even_and_stay_within_a_byte) {
  const auto code = [](float ratio, int zero = 0) { return int8_code(ratio, zero); };
  EXPECT_EQ(code(0.5f), 0);
  EXPECT_EQ(code(1.5f), 2);
  EXPECT_EQ(code(2.5f), 2);
  EXPECT_EQ(code(-2.5f), -2);
  EXPECT_EQ(code(2.5f, 1), 3) << "the zero point is added after rounding";
  EXPECT_EQ(code(-0.5f, -128), -128);
  EXPECT_EQ(code(255.0f, -128), 127);
  EXPECT_EQ(code(255.49f, -128), 127);
  EXPECT_EQ(code(1e30f), 127);
  EXPECT_EQ(code(-1e30f), -128);
  EXPECT_EQ(code(kInfinity, -128), 127);
  EXPECT_EQ(code(-kInfinity, 127), -128);
  EXPECT_EQ(code(kNotANumber, 5), 5);
  for (int zero = -128; zero < 128; zero += 17)
    for (float ratio = -600; ratio < 600; ratio += 0.37f)
      ASSERT_EQ(code(ratio, zero), std::clamp(static_cast<int>(std::nearbyint(ratio)) + zero, -128, 127))
          << ratio << " from " << zero;
}

}  // namespace
}  // namespace lorry::formula
