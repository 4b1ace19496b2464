#include "lorry/cli/learning_rate_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "lorry/base/error.h"
#include "lorry/optim/schedule.h"

namespace lorry::cli {
namespace {

TEST(LearningRatePlan, a_run_planned_once_has_the_rates_of_a_counted_one) {
  const LearningRatePlan plan({0, 0, 200, 0.1});
  const optim::Schedule counted{optim::Schedule::Kind::cosine, 0.5, 0.05, 20, 200};
  for (int64_t step = 0; step < 200; ++step) EXPECT_NEAR(plan.rate(step, 0.5, 0.05), counted.at(step), 1e-12) << step;
  EXPECT_EQ(plan.warmup_steps(), 20);
  EXPECT_EQ(plan.steps(), 200);
}

TEST(LearningRatePlan, a_new_plan_goes_on_from_its_own_progress) {
  LearningRatePlan plan({0, 0, 100, 0.1});
  plan.add({40, 0.7, 60, 0.1});  // time was lost: 20 steps are left
  EXPECT_DOUBLE_EQ(plan.progress(39), 0.39);
  EXPECT_DOUBLE_EQ(plan.progress(40), 0.7);
  EXPECT_DOUBLE_EQ(plan.progress(50), 0.85);
  EXPECT_DOUBLE_EQ(plan.progress(60), 1);
  const double done = (0.85 - 0.1) / 0.9;
  EXPECT_NEAR(plan.rate(50, 2, 0.2), 0.2 + 1.8 * 0.5 * (1 + std::cos(std::numbers::pi * done)), 1e-12);
  EXPECT_EQ(plan.warmup_steps(), 10);
}

TEST(LearningRatePlan, a_warmup_of_nothing_begins_at_the_largest_rate_and_one_past_the_end_never_reaches_it) {
  EXPECT_EQ(LearningRatePlan({0, 0, 100, 0}).rate(0, 2, 0), 2);
  const LearningRatePlan endless({0, 0, 100, 1.5});
  EXPECT_NEAR(endless.rate(99, 3, 0), 2, 1e-12);
  EXPECT_EQ(endless.warmup_steps(), 100);
}

TEST(LearningRatePlan, text_and_back_is_the_same_plan_to_the_bit) {
  LearningRatePlan plan({0, 0, 1000, 0.1});
  plan.add({1, 0.001, 77, 1.0 / 3});
  plan.add({30, 0.1 + 0.2, 80, 1.0 / 3});
  const LearningRatePlan back = LearningRatePlan::parse(plan.text());
  EXPECT_EQ(back.parts(), plan.parts());
  for (int64_t step = 0; step < 80; ++step) EXPECT_EQ(back.rate(step, 3e-3, 3e-4), plan.rate(step, 3e-3, 3e-4));
}

TEST(LearningRatePlan, text_that_is_no_plan_is_refused) {
  for (const char* text : {"", "many", "0 0 10", "0 0 10 0.1 7", "1 0 10 0.1", "0 0.5 10 0.1", "0 0 10 nan",
                           "0 0 10 0.1\n5 0.4 3 0.1", "0 0 10 0.1\n5 0.4 9 0.1\n4 0.5 9 0.1",
                           "0 0 10 0.1\n5 0.4 9 0.1\n6 0.3 9 0.1", "0 0 10 0.1\n5 1.5 9 0.1", "0 0 -1 0.1"})
    EXPECT_THROW(LearningRatePlan::parse(text), FormatError) << text;
  LearningRatePlan plan({0, 0, 10, 0});
  EXPECT_THROW(plan.add({5, 0.5, 4, 0}), ValueError);
}

}  // namespace
}  // namespace lorry::cli
