#include "lorry/cli/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace lorry::cli {
namespace {

// Standard error is captured into a file here, so it is no terminal.

TEST(Progress, times_read_as_a_clock) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(67.4), "1:07");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(7509), "2:05:09");
  EXPECT_EQ(clock_text(-1), "0:00");
}

TEST(Progress, the_last_line_appears_off_a_terminal_without_control_characters) {
  testing::internal::CaptureStderr();
  {
    Progress progress("train", 0, 10, false);
    for (int i = 1; i <= 10; ++i) progress.update(i, "loss 1.5");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "train 100 %  10/10  loss 1.5  0:00 left\n");
}

TEST(Progress, quiet_says_nothing) {
  testing::internal::CaptureStderr();
  {
    Progress progress("train", 0, 1, true);
    progress.update(1, "loss 1.5");
    progress.say("saved");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace lorry::cli
