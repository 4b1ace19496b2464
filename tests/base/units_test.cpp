#include "lorry/base/units.h"

#include <gtest/gtest.h>

namespace lorry {
namespace {

TEST(Units, a_figure_has_three_digits_and_the_unit_that_fits) {
  EXPECT_EQ(quantity(12345, " tokens/s"), "12.3 k tokens/s");
  EXPECT_EQ(quantity(758.26, " tokens/s"), "758 tokens/s");
  EXPECT_EQ(quantity(1.234e9, "B"), "1.23 GB");
  EXPECT_EQ(quantity(128, "B"), "128 B") << "what is counted has no decimals";
  EXPECT_EQ(quantity(0, "B"), "0 B");
  EXPECT_EQ(quantity(2.5e-3, "B/s"), "0.00 B/s");
  EXPECT_EQ(duration_text(0.0452), "45.2 ns");
  EXPECT_EQ(duration_text(1.2345), "1.23 us");
  EXPECT_EQ(duration_text(14'321), "14.3 ms");
  EXPECT_EQ(duration_text(-14'321), "-14.3 ms") << "a difference";
  EXPECT_EQ(duration_text(2.5e6), "2.50 s");
  EXPECT_EQ(duration_text(7.2e9), "7200 s");
  EXPECT_EQ(bytes_text(std::nullopt), "-");
}

TEST(Units, rounding_never_shows_a_fourth_digit) {
  EXPECT_EQ(quantity(9.996, "s"), "10.0 s");
  EXPECT_EQ(quantity(99.96, "s"), "100 s");
  EXPECT_EQ(quantity(999.6, "s"), "1.00 ks");
  EXPECT_EQ(duration_text(0.9996), "1.00 us");
}

}  // namespace
}  // namespace lorry
