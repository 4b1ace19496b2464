#include "lorry/cli/pace.h"

#include <gtest/gtest.h>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

TEST(Pace, the_first_two_steps_do_not_count_once_there_are_others) {
  Pace pace;
  EXPECT_THROW(pace.seconds_a_step(), ValueError);
  pace.add_step(9);
  EXPECT_EQ(pace.seconds_a_step(), 9);
  pace.add_step(2);
  EXPECT_FALSE(pace.typical());
  EXPECT_EQ(pace.seconds_a_step(), 2);
  for (int i = 0; i < 3; ++i) pace.add_step(0.5);
  EXPECT_EQ(pace.seconds_a_step(), 0.5);
  EXPECT_TRUE(pace.known(1.5));
  EXPECT_FALSE(pace.known(1.6));
}

TEST(Pace, a_pause_changes_nothing_and_a_slower_machine_is_seen) {
  Pace pace;
  for (int i = 0; i < 100; ++i) pace.add_step(0.25);
  pace.add_step(3600);
  EXPECT_EQ(pace.seconds_a_step(), 0.25);
  for (int i = 0; i < 32; ++i) pace.add_step(0.5);
  EXPECT_EQ(pace.seconds_a_step(), 0.5);
}

TEST(Pace, a_long_time_is_told_in_the_unit_that_fits) {
  EXPECT_FALSE(long_time_text(59));
  EXPECT_EQ(long_time_text(60), "about 1 minute");
  EXPECT_EQ(long_time_text(100 * 60), "about 100 minutes");
  EXPECT_EQ(long_time_text(3.1 * 3600), "about 3 hours");
  EXPECT_EQ(long_time_text(50 * 3600), "about 2 days");
}

}  // namespace
}  // namespace lorry::cli
