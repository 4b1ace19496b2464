#include "lorry/formula/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace lorry::formula {
namespace {

float value_of(uint32_t bf16) { return std::bit_cast<float>(bf16 << 16); }

TEST(Rounding, the_share_of_random_bits_that_round_up_is_what_is_cut_off) {
  for (const uint32_t bits : {0x3f800000u, 0x3f800001u, 0x3f807fffu, 0x3f808000u, 0x3f80ffffu, 0xc2f51234u, 0x00000001u,
                              0x8000ffffu, 0x007f8765u, 0x7f7f0003u}) {
    const float x = std::bit_cast<float>(bits);
    uint32_t up = 0;
    for (uint32_t random = 0; random < 65'536; ++random) {
      const uint32_t rounded = round_stochastically(x, random);
      ASSERT_TRUE(rounded == bits >> 16 || rounded == (bits >> 16) + 1) << x << " by " << random;
      up += rounded != bits >> 16;
    }
    EXPECT_EQ(up, bits & 0xffffu) << x;
  }
}

TEST(Rounding, what_a_bf16_holds_is_kept) {
  for (uint32_t bf16 = 0; bf16 < 65'536; ++bf16) {
    const bool nan = (bf16 & 0x7fffu) > 0x7f80u;
    for (const uint32_t random : {0u, 1u, 0x8000u, 0xffffu})
      ASSERT_EQ(round_stochastically(value_of(bf16), random), nan ? 0x7fc0u : bf16);
  }
}

TEST(Rounding, infinities_stay_and_nans_become_one) {
  for (const uint32_t random : {0u, 0xffffu}) {
    EXPECT_EQ(round_stochastically(std::numeric_limits<float>::infinity(), random), 0x7f80u);
    EXPECT_EQ(round_stochastically(-std::numeric_limits<float>::infinity(), random), 0xff80u);
    for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
      EXPECT_EQ(round_stochastically(std::bit_cast<float>(nan), random), 0x7fc0u);
  }
  EXPECT_EQ(round_stochastically(std::numeric_limits<float>::max(), 0), 0x7f7fu);
  EXPECT_EQ(round_stochastically(std::numeric_limits<float>::max(), 0xffff), 0x7f80u);
}

TEST(Rounding, eight_elements_share_a_block_and_no_bits) {
  const Words4 words{{0x00010000u, 0x00030002u, 0x00050004u, 0xffff0006u}};
  for (int i = 0; i < kRoundedAtOnce; ++i)
    EXPECT_EQ(rounding_bits(words, 16 + i), i == 7 ? 0xffffu : static_cast<uint32_t>(i));
}

TEST(Rounding, every_array_of_every_parameter_has_a_draw_of_its_own_at_every_step) {
  std::set<uint64_t> offsets;
  size_t named = 0;
  for (const uint32_t number : {0u, 1u, 2u, 255u, (1u << 24) - 1})
    for (uint32_t array = 0; array < 4; ++array)
      for (const double step : {1.0, 2.0, 3.0, 1e6, 4294967295.0}) {
        const RandomKey key = rounding_key(77, number, array, step);
        EXPECT_EQ(key.seed, 77u);
        offsets.insert(key.offset);
        ++named;
      }
  EXPECT_EQ(offsets.size(), named);
}

TEST(Rounding, small_steps_add_up_where_the_nearest_would_stand_still) {
  constexpr int kElements = 512, kSteps = 1'000;
  constexpr float kStep = 0x1p-12f;  // a sixteenth of what a bf16 of 1 has for its last bit, half of it below
  double mean = 0;
  for (int i = 0; i < kElements; ++i) {
    float x = 1;
    for (int step = 1; step <= kSteps; ++step) {
      const Words4 words = random_block(rounding_key(5, 3, 0, step), static_cast<uint64_t>(i / kRoundedAtOnce));
      x = value_of(round_stochastically(x + kStep, rounding_bits(words, i)));
    }
    mean += x / kElements;
  }
  EXPECT_NEAR(mean, 1 + kSteps * kStep, 5 * std::sqrt(kSteps * kStep * 0x1p-7 / kElements));
}

}  // namespace
}  // namespace lorry::formula
