#include "lorry/formula/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lorry::formula {
namespace {

/// The map by its definition, in doubles: code M has e leading zeros among W bits, and what follows its first one
/// divides (8^-(e+1), 8^-e] into equal parts.
double map_of(uint32_t m, int width) {
  if (m == 0) return 0;
  const int n = std::bit_width(m) - 1, e = width - 1 - n;
  const double high = std::pow(8.0, -e), low = high / 8, parts = std::exp2(n);
  return low + (high - low) * (m - parts + 1) / parts;
}
template <bool kSigned>
std::vector<double> map_of() {
  std::vector<double> map;
  for (uint32_t m = 0; m < (kSigned ? 128u : 256u); ++m) map.push_back(map_of(m, kSigned ? 7 : 8));
  return map;
}

QuantScale scale_of(float largest) { return quant_scale(std::bit_cast<uint32_t>(largest)); }

template <class F>
void for_both(const F& f) {
  f.template operator()<true>();
  f.template operator()<false>();
}

TEST(Quantize, an_array_is_its_codes_and_then_their_scales) {
  EXPECT_EQ(quant_bytes(0), 0);
  EXPECT_EQ(quant_bytes(1), 8);
  EXPECT_EQ(quant_bytes(255), 256 + 4);
  EXPECT_EQ(quant_bytes(256), 256 + 4);
  EXPECT_EQ(quant_bytes(257), 260 + 8);
  EXPECT_EQ(quant_scales_at(257), 260);
  EXPECT_EQ(quant_bytes(int64_t{1} << 40), (int64_t{1} << 40) + (int64_t{1} << 34));
}

TEST(Quantize, codes_are_the_numbers_of_the_map) {
  for_both([]<bool kSigned>() {
    const std::vector<double> map = map_of<kSigned>();
    for (uint32_t m = 0; m < map.size(); ++m) {
      EXPECT_EQ(QuantCode<kSigned>::decode(m), map[m]) << "code " << m;
      EXPECT_TRUE(m == 0 || map[m] > map[m - 1]) << "code " << m;
      EXPECT_EQ(kSigned ? -QuantCode<kSigned>::decode(m | 0x80) : map[m], map[m]) << "code " << m;
    }
    EXPECT_EQ(map.back(), 1);
  });
  EXPECT_TRUE(std::signbit(QuantCode<true>::decode(0x80)));
}

TEST(Quantize, a_number_is_given_the_nearest_code) {
  for_both([]<bool kSigned>() {
    const std::vector<double> map = map_of<kSigned>();
    for (const float scale :
         {1.0f, 0.3f, 1.7e-3f, 9.1e-30f, std::numeric_limits<float>::min(), 5e37f, std::numeric_limits<float>::max()}) {
      const QuantScale by = scale_of(scale);
      EXPECT_EQ(by.scale, scale);
      // All exponents, and many parts of the uppermost ones.
      for (uint32_t bits = 0; bits <= 0x3f800000u; bits += bits < 0x33000000u ? 0x3ffff : 0x7fff) {
        const float value = std::bit_cast<float>(bits) * scale;
        const double ratio = static_cast<double>(value) / scale;
        const uint32_t code = QuantCode<kSigned>::encode(value, by);
        double nearest = ratio;
        for (const double x : map)
          if (x > 0) nearest = std::min(nearest, std::fabs(x - ratio));
        // The line is rounded to a 256th of a step, and below its least number the map is taken to go on to 8^-W, not
        // to zero.
        const double allowed = nearest * (1 + 1.0 / 60) + 1e-6 * ratio + (code == 0 ? map[1] / 8 : 0);
        if (code > 0 && ratio < map[1]) continue;  // see below
        ASSERT_LE(std::fabs(map[code & (map.size() - 1)] - ratio), allowed)
            << value << " of " << scale << ": code " << code;
        if (kSigned) {
          ASSERT_EQ(QuantCode<kSigned>::encode(-value, by), code | 0x80u) << value << " of " << scale;
        }
      }
    }
  });
}

TEST(Quantize, numbers_below_the_map_are_zero_or_its_least_number_where_none_has_a_sign) {
  for (const float scale : {1.0f, 0.3f, 9.1e-30f, 5e37f}) {
    const QuantScale by = scale_of(scale);
    EXPECT_EQ(QuantCode<true>::encode(0x1.1p-19f * scale, by), 0u);
    EXPECT_EQ(QuantCode<true>::encode(0x1.3p-19f * scale, by), 1u);
    for (float ratio = 0x1p-21f; ratio >= 0x1p-125f; ratio /= 2) {
      if (ratio * scale == 0) break;
      EXPECT_EQ(QuantCode<true>::encode(ratio * scale, by), 0u) << ratio << " of " << scale;
      EXPECT_EQ(QuantCode<false>::encode(ratio * scale, by), 1u) << ratio << " of " << scale;
    }
    EXPECT_EQ(QuantCode<false>::encode(0, by), 0u);
  }
}

TEST(Quantize, what_was_decoded_keeps_its_code_and_the_largest_its_value) {
  for_both([]<bool kSigned>() {
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 65'521) {
      const QuantScale by = quant_scale(bits);
      ASSERT_LT(by.scale * by.inverse, 1) << by.scale;
      ASSERT_EQ(QuantCode<kSigned>::decode(QuantCode<kSigned>::encode(by.scale, by)), 1) << by.scale;
      // Products with tiny scales are subnormal, and round to their neighbours.
      if (bits < 0x0c000000u) continue;
      for (uint32_t code = 0; code < 256; ++code) {
        const float value = QuantCode<kSigned>::decode(code) * by.scale;
        ASSERT_EQ(QuantCode<kSigned>::encode(value, by), code) << by.scale;
      }
    }
  });
}

TEST(Quantize, largest_numbers_of_every_exponent_stay_below_one) {
  for (uint32_t exponent = 1; exponent < 255; ++exponent)
    for (uint32_t k = 0; k < 4'096; ++k)
      for (const uint32_t fraction : {k, 0x7fffffu - k, k * 2'047, k * 1'999 + 7}) {
        const QuantScale by = quant_scale(exponent << 23 | (fraction & 0x7fffffu));
        ASSERT_LT(by.scale * by.inverse, 1) << by.scale;
      }
}

TEST(Quantize, blocks_that_have_no_scale_are_zero_or_nan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for_both([]<bool kSigned>() {
    for (const float largest : {0.0f, 1e-45f, std::bit_cast<float>(0x007fffffu)}) {
      const QuantScale by = scale_of(largest);
      EXPECT_EQ(by.scale, 0);
      for (const float x : {0.0f, -0.0f, largest, -largest})
        EXPECT_EQ(QuantCode<kSigned>::encode(x, by), 0u) << x << " of " << largest;
    }
    for (const float largest : {kInf, std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7f800001u),
                                std::bit_cast<float>(0x7fffffffu)}) {
      const QuantScale by = scale_of(largest);
      EXPECT_EQ(std::bit_cast<uint32_t>(by.scale), 0x7fc00000u);
      for (const float x : {0.0f, 1.0f, -1.0f, 3e38f, 1e-45f, kInf, -kInf, largest, -largest, NAN}) {
        EXPECT_EQ(QuantCode<kSigned>::encode(x, by), 0u) << x << " of " << largest;
        EXPECT_TRUE(std::isnan(QuantCode<kSigned>::decode(0) * by.scale));
      }
    }
  });
}

}  // namespace
}  // namespace lorry::formula
