#include "lorry/cli/step_timer.h"

#include <gtest/gtest.h>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

TEST(StepTimer, the_first_two_steps_do_not_count_once_there_are_others) {
  StepTimer timer;
  EXPECT_THROW(timer.seconds_per_step(), ValueError);
  timer.add_step(9);
  EXPECT_EQ(timer.seconds_per_step(), 9);
  timer.add_step(2);
  EXPECT_FALSE(timer.typical());
  EXPECT_EQ(timer.seconds_per_step(), 2);
  for (int i = 0; i < 3; ++i) timer.add_step(0.5);
  EXPECT_EQ(timer.seconds_per_step(), 0.5);
  EXPECT_TRUE(timer.known(1.5));
  EXPECT_FALSE(timer.known(1.6));
}

TEST(StepTimer, a_pause_changes_nothing_and_a_slower_machine_is_seen) {
  StepTimer timer;
  for (int i = 0; i < 100; ++i) timer.add_step(0.25);
  timer.add_step(3600);
  EXPECT_EQ(timer.seconds_per_step(), 0.25);
  for (int i = 0; i < 32; ++i) timer.add_step(0.5);
  EXPECT_EQ(timer.seconds_per_step(), 0.5);
}

TEST(StepTimer, a_long_time_is_told_in_the_unit_that_fits) {
  EXPECT_FALSE(approximate_time_text(59));
  EXPECT_EQ(approximate_time_text(60), "about 1 minute");
  EXPECT_EQ(approximate_time_text(100 * 60), "about 100 minutes");
  EXPECT_EQ(approximate_time_text(3.1 * 3600), "about 3 hours");
  EXPECT_EQ(approximate_time_text(50 * 3600), "about 2 days");
}

}  // namespace
}  // namespace lorry::cli
