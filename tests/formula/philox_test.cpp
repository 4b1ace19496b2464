#include "lorry/formula/philox.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lorry/formula/random.h"

namespace lorry::formula {
namespace {

void expect_words(Words4 got, Words4 expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], expected.word[i]) << "word " << i;
}

// The vectors of the reference implementation, Random123 1.14.0, tests/kat_vectors.
TEST(Philox, gives_the_known_answers_of_the_reference_implementation) {
  expect_words(philox({{0, 0, 0, 0}}, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_words(philox({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u), {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0), {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, a_block_is_the_counter_of_block_and_offset_under_the_seed) {
  const RandomKey key{0x0123456789abcdef, 0xfedcba9876543210};
  expect_words(random_block(key, 0x1122334455667788), philox({{0x55667788, 0x11223344, 0x76543210, 0xfedcba98}}, 0x89abcdef, 0x01234567));
}

TEST(RandomFormula, units_cover_zero_to_just_below_one) {
  EXPECT_EQ(unit_f32(0), 0.0f);
  EXPECT_EQ(unit_f32(~0u), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(unit_f64(0, 0), 0.0);
  EXPECT_EQ(unit_f64(~0u, ~0u), std::nextafter(1.0, 0.0));
}

TEST(RandomFormula, logarithm_is_accurate_over_all_its_arguments) {
  for (uint64_t w = 0; w < (uint64_t{1} << 32); w += 65521) {
    const float x = static_cast<float>(static_cast<uint32_t>(w)) * 0x1p-32f + 0x1p-33f;
    const double exact = std::log(static_cast<double>(x));
    ASSERT_NEAR(log_unit(x), exact, 1.0e-7 * std::abs(exact)) << "x = " << x;
    const double y = static_cast<double>(w << 21) * 0x1p-53 + 0x1p-54;
    ASSERT_NEAR(log_unit(y), std::log(y), 3e-16 * std::abs(std::log(y))) << "y = " << y;
  }
  EXPECT_EQ(log_unit(1.0f), 0.0f);
  EXPECT_EQ(log_unit(1.0), 0.0);
}

TEST(RandomFormula, sine_and_cosine_are_accurate_in_every_quarter) {
  for (uint64_t w = 0; w < (uint64_t{1} << 32); w += 65521) {
    const double turns = static_cast<double>(w) * 0x1p-32, angle = 2 * 3.14159265358979323846 * turns;
    const auto single = sincos_turns(static_cast<uint32_t>(w));
    ASSERT_NEAR(single.sin, std::sin(angle), 1.2e-7) << "turns " << turns;
    ASSERT_NEAR(single.cos, std::cos(angle), 1.2e-7) << "turns " << turns;
    const auto twice = sincos_turns(w << 32);
    ASSERT_NEAR(twice.sin, std::sin(angle), 1e-15) << "turns " << turns;
    ASSERT_NEAR(twice.cos, std::cos(angle), 1e-15) << "turns " << turns;
  }
}

TEST(RandomFormula, below_is_the_upper_half_of_the_product) {
  const uint64_t words[] = {0, 1, 0xffffffff, 0x100000000, 0x0123456789abcdef, 0xfedcba9876543210, ~uint64_t{0}};
  for (const uint64_t word : words)
    for (const uint64_t range : words)
      EXPECT_EQ(below(word, range), range == 0 ? word : static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64)) << word << " " << range;
}

}  // namespace
}  // namespace lorry::formula
