#include "lorry/cli/checks.h"

#include <gtest/gtest.h>

namespace lorry::cli {
namespace {

TEST(Checks, the_nearest_name_has_the_fewest_changed_letters) {
  const std::vector<std::string> names = {"info", "train", "generate", "bench"};
  EXPECT_EQ(nearest("trian", names), "train") << "two letters swapped";
  EXPECT_EQ(nearest("tran", names), "train") << "one left out";
  EXPECT_EQ(nearest("generrate", names), "generate") << "one too many";
  EXPECT_EQ(nearest("bensh", names), "bench") << "one replaced";
  EXPECT_FALSE(nearest("frobnicate", names));
  EXPECT_FALSE(nearest("", names));
}

TEST(Checks, a_name_is_one_of_those_expected) {
  const std::vector<std::string> names = {"nano", "tiny", "small"};
  EXPECT_EQ(check_one_of("tiny", names), "");
  EXPECT_EQ(check_one_of("tinny", names), "got 'tinny'; expected nano, tiny or small; did you mean tiny?");
  EXPECT_EQ(check_one_of("enormous", names), "got 'enormous'; expected nano, tiny or small");
}

TEST(Checks, numbers_outside_their_range_are_told_it) {
  EXPECT_EQ(check_whole("3", 1, 8), "");
  EXPECT_EQ(check_whole("9", 1, 8), "got '9'; expected a whole number from 1 to 8");
  EXPECT_EQ(check_whole("0", 1), "got '0'; expected a whole number of at least 1");
  EXPECT_EQ(check_whole("1.5", 1), "got '1.5'; expected a whole number of at least 1");
  EXPECT_EQ(check_whole("99999999999999999999", 1),
            "got '99999999999999999999'; expected a whole number of at least 1");
  EXPECT_EQ(check_seed("18446744073709551615"), "");
  EXPECT_EQ(parse_seed("18446744073709551615"), ~uint64_t{0});
  for (const char* word : {"", "many", "-1", "1x", "18446744073709551616"}) EXPECT_FALSE(parse_seed(word)) << word;
  EXPECT_EQ(check_seed("-1"), "got '-1'; expected a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(check_number("1e-3", false), "");
  EXPECT_EQ(check_number("0", true), "");
  EXPECT_EQ(check_number("0", false), "got '0'; expected a number above 0");
  for (const char* word : {"-1", "nan", "inf", "many", "1x", ""})
    EXPECT_EQ(check_number(word, true), std::string("got '") + word + "'; expected a number of at least 0");
  EXPECT_EQ(check_between("0.5", 0, 1), "");
  EXPECT_EQ(check_between("nan", 0, 1), "got 'nan'; expected a number from 0 to 1");
}

}  // namespace
}  // namespace lorry::cli
