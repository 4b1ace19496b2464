#include "lorry/formula/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "lorry/formula/random.h"
#include "tests/support/scale.h"

namespace lorry::formula {
namespace {

void expect_words(Words4 got, Words4 expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], expected.word[i]) << "word " << i;
}

// The vectors of the reference implementation, Random123 1.14.0, tests/kat_vectors.
TEST(Philox, gives_the_known_answers_of_the_reference_implementation) {
  expect_words(philox({{0, 0, 0, 0}}, philox_keys(0)), {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}});
  expect_words(philox({{~0u, ~0u, ~0u, ~0u}}, philox_keys(~uint64_t{0})),
               {{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}});
  expect_words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, philox_keys(0x299f31d0a4093822)),
               {{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}});
}

TEST(Philox, a_block_is_the_counter_of_block_and_offset_under_the_seed) {
  const RandomKey key{0x0123456789abcdef, 0xfedcba9876543210};
  expect_words(random_block(key, 0x1122334455667788),
               philox({{0x55667788, 0x11223344, 0x76543210, 0xfedcba98}}, philox_keys(key.seed)));
}

TEST(RandomFormula, units_cover_zero_to_just_below_one) {
  EXPECT_EQ(unit_f32(0), 0.0f);
  EXPECT_EQ(unit_f32(~0u), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(unit_f64(0, 0), 0.0);
  EXPECT_EQ(unit_f64(~0u, ~0u), std::nextafter(1.0, 0.0));
}

TEST(RandomFormula, logarithm_is_accurate_over_all_its_arguments) {
  for (uint64_t w = 0; w < (uint64_t{1} << 32); w += 65521) {
    const double x = static_cast<double>(w << 21) * 0x1p-53 + 0x1p-54;
    ASSERT_NEAR(log_unit(x), std::log(x), 3e-16 * std::abs(std::log(x))) << "x = " << x;
  }
  EXPECT_EQ(log_unit(1.0), 0.0);
}

/// -2 ln u for the u that a word stands for.
long double exact_radius_squared(uint32_t word) {
  const long double magnitude = std::fabs(static_cast<long double>(static_cast<int32_t>(word)));
  return -2 * std::log((magnitude + 0.25L) / 0x1p31L);
}
long double exact_radius_squared(uint64_t word) {
  return -2 * std::log(static_cast<long double>(2 * (word & 0x000fffffffffffff) + 1) / 0x1p53L);
}

/// Words at random, and those at the ends, where the logarithm is large or small: their sizes are spread over all
/// powers of two. LORRY_TEST_SCALE multiplies them.
template <class Word, class Check>
void for_words(const Check& check) {
  std::mt19937_64 random(7);
  for (const Word word :
       {Word(0), Word(1), ~Word(0), Word(1) << (8 * sizeof(Word) - 1), ~(Word(1) << (8 * sizeof(Word) - 1))})
    check(word);
  for (int64_t i = 0; i < test::scaled(300'000); ++i) {
    const auto word = static_cast<Word>(random() >> (random() % (8 * sizeof(Word))));
    check(i % 2 == 0 ? word : ~word);
  }
}

TEST(RandomFormula, the_squared_radius_is_as_accurate_as_its_header_says) {
  double worst32 = 0, worst64 = 0;
  for_words<uint32_t>([&](uint32_t word) {
    const double exact = static_cast<double>(exact_radius_squared(word)), got = radius_squared(word);
    ASSERT_GT(got, 0) << word;
    // u itself is rounded, by at most 2^-25, and moved to the middle of the last step below 1.
    worst32 = std::max(worst32, (std::abs(got - exact) - 0x1.01p-23) / std::max(exact, 1e-30));
  });
  for_words<uint64_t>([&](uint64_t word) {
    const auto exact = static_cast<double>(exact_radius_squared(word));
    ASSERT_GT(radius_squared(word), 0) << word;
    worst64 = std::max(worst64, std::abs(radius_squared(word) - exact) / exact);
  });
  EXPECT_LT(worst32, 0x1p-21);
  EXPECT_LT(worst64, 0x1p-51);
  RecordProperty("worst32", std::to_string(std::log2(worst32)));
  RecordProperty("worst64", std::to_string(std::log2(worst64)));
}

TEST(RandomFormula, directions_are_as_accurate_as_their_header_says) {
  double worst32 = 0, worst64 = 0;
  const auto off = [](const auto& got, long double half_turns) {
    const long double angle = 3.14159265358979323846L * half_turns;
    return static_cast<double>(
        std::max(std::fabs(got.first - std::cos(angle)), std::fabs(got.second - std::sin(angle))));
  };
  for_words<uint32_t>([&](uint32_t word) {
    worst32 = std::max(worst32, off(direction(word), static_cast<long double>(static_cast<int32_t>(word)) * 0x1p-32L));
  });
  for_words<uint64_t>([&](uint64_t word) {
    worst64 = std::max(
        worst64, off(direction(word), static_cast<long double>((word & 0x000fffffffffffff) | 1) * 0x1p-52L - 0.5L));
  });
  EXPECT_LT(worst32, 0x1p-22);
  EXPECT_LT(worst64, 0x1p-51);
  RecordProperty("worst32", std::to_string(std::log2(worst32)));
  RecordProperty("worst64", std::to_string(std::log2(worst64)));
}

TEST(RandomFormula, the_largest_normals_are_as_far_out_as_the_header_says) {
  const auto far32 = normal_pair(uint32_t{0}, uint32_t{0}, 0.0f, 1.0f);
  EXPECT_NEAR(far32.first, std::sqrt(-2 * std::log(0x1p-33)), 1e-5);
  EXPECT_EQ(far32.second, 0);
  const auto far64 = normal_pair(uint64_t{0}, uint64_t{0x0008000000000000}, 0.0, 1.0);
  EXPECT_NEAR(far64.first, std::sqrt(-2 * std::log(0x1p-53)), 1e-12);
}

TEST(RandomFormula, below_is_the_upper_half_of_the_product) {
  const uint64_t words[] = {0, 1, 0xffffffff, 0x100000000, 0x0123456789abcdef, 0xfedcba9876543210, ~uint64_t{0}};
  for (const uint64_t word : words)
    for (const uint64_t range : words)
      EXPECT_EQ(below(word, range),
                range == 0 ? word : static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64))
          << word << " " << range;
}

}  // namespace
}  // namespace lorry::formula
