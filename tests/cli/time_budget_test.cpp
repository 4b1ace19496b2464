#include "lorry/cli/time_budget.h"

#include <gtest/gtest.h>

namespace lorry::cli {
namespace {

TEST(TimeBudget, steps_fill_the_time_that_is_left) {
  TimeBudget budget(100);
  budget.add_step(9);  // the first two do not count
  budget.add_step(2);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(budget.ready());
    budget.add_step(0.5);
  }
  EXPECT_TRUE(budget.ready());
  // 12 taken; 0.95 * (100 - 16 - 4) seconds at half a second each.
  EXPECT_EQ(budget.decide(16, 4), 12 + 152);
}

TEST(TimeBudget, a_time_that_is_over_ends_with_the_steps_taken) {
  TimeBudget budget(10);
  EXPECT_EQ(budget.decide(0, 0), 1);
  for (int i = 0; i < 5; ++i) budget.add_step(3);
  EXPECT_EQ(budget.decide(15, 0), 5);
}

TEST(TimeBudget, a_run_interrupted_at_once_goes_by_the_steps_it_has) {
  TimeBudget budget(100);
  budget.add_step(3);
  budget.add_step(1);
  EXPECT_EQ(budget.decide(20, 0), 2 + 38);  // 0.95 * 80 seconds at two seconds each
}

TEST(TimeBudget, a_long_time_is_told_in_the_unit_that_fits) {
  EXPECT_FALSE(long_time_text(59));
  EXPECT_EQ(long_time_text(60), "about 1 minute");
  EXPECT_EQ(long_time_text(100 * 60), "about 100 minutes");
  EXPECT_EQ(long_time_text(3.1 * 3600), "about 3 hours");
  EXPECT_EQ(long_time_text(50 * 3600), "about 2 days");
}

}  // namespace
}  // namespace lorry::cli
