#include "lorry/cli/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace lorry::cli {
namespace {

// Standard error is captured into a file here, so it is no terminal.

TEST(Progress, times_read_as_a_clock) {
  EXPECT_EQ(hms_text(0), "0:00");
  EXPECT_EQ(hms_text(67.4), "1:07");
  EXPECT_EQ(hms_text(59.6), "1:00");
  EXPECT_EQ(hms_text(7509), "2:05:09");
  EXPECT_EQ(hms_text(-1), "0:00");
}

TEST(Progress, the_last_line_appears_off_a_terminal_without_control_characters) {
  testing::internal::CaptureStderr();
  {
    Progress progress("train", 0, 10, false);
    for (int i = 1; i <= 10; ++i) progress.update(i, "loss 1.5");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "train 100 %  10/10  loss 1.5  0:00 left\n");
}

TEST(Progress, the_time_that_is_left_may_be_given) {
  testing::internal::CaptureStderr();
  {
    Progress progress("train", 0, 10, false);
    progress.update(10, "loss 1.5", "", 65);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "train 100 %  10/10  loss 1.5  1:05 left\n");
}

constexpr ProgressFacts kLong{"train", 120'000, 1'000'000, "loss 1.234", "12.3 k tokens/s", 5 * 3600.0};

TEST(ProgressLine, tells_everything_where_there_is_room) {
  EXPECT_EQ(progress_line(kLong, 200),
            "train [==>                     ]  12 %  120000/1000000  loss 1.234  12.3 k tokens/s  5:00:00 left");
}

TEST(ProgressLine, loses_the_bar_then_words_then_whole_figures_and_the_loss_last) {
  const std::vector<std::string> narrower = {
      "train  12 %  120000/1000000  loss 1.234  12.3 k tokens/s  5:00:00 left",
      "12 %  120000/1000000  loss 1.234  12.3 k tokens/s  5:00:00 left",
      "12 %  120000/1000000  loss 1.234  5:00:00 left",
      "12 %  120000/1000000  loss 1.234  5:00:00",
      "120000/1000000  loss 1.234  5:00:00",
      "loss 1.234  5:00:00",
      "loss 1.234",
      "",
  };
  for (size_t i = 0; i < narrower.size(); ++i) {
    const int width = static_cast<int>(narrower[i].size());
    EXPECT_EQ(progress_line(kLong, width), narrower[i]);
    if (width == 0) break;
    EXPECT_EQ(progress_line(kLong, width - 1), narrower[i + 1]);
  }
  EXPECT_EQ(progress_line(kLong, 79), narrower[0]) << "a terminal of 80 columns";
  EXPECT_EQ(progress_line(kLong, 39), narrower[4]) << "a terminal of 40 columns";
}

TEST(ProgressLine, says_100_percent_at_the_end_only_and_no_time_that_is_not_known) {
  EXPECT_EQ(progress_line({"train", 999, 1000, "loss 1.5"}, 200, false), "train  99 %  999/1000  loss 1.5");
  EXPECT_EQ(progress_line({"train", 7, 0, "loss 1.5", "2.0 k tokens/s"}, 200), "train 7  loss 1.5  2.0 k tokens/s");
}

/// What Progress draws on a terminal of `columns`: hours are left after the first of many steps.
std::string drawn_on_terminal(int columns) {
  int ends[2];
  const winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(openpty(&ends[0], &ends[1], nullptr, nullptr, &size), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  {
    Progress progress("train", 0, 200'000, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));  // lines are not drawn faster
    progress.update(1, "loss 1.234", "12.3 k tokens/s");
  }
  dup2(before, STDERR_FILENO);
  std::string line;
  char text[1000];
  while (!line.ends_with("\r\n")) {  // the terminal hands on what it has
    const ssize_t got = read(ends[0], text, sizeof text);
    if (got <= 0) break;
    line.append(text, static_cast<size_t>(got));
  }
  for (const int file : {ends[0], ends[1], before}) close(file);
  EXPECT_TRUE(line.starts_with("\r\033[K") && line.ends_with("\r\n")) << line;
  return line.substr(4, line.size() - 6);
}

TEST(Progress, a_line_fits_its_terminal_with_hours_left_and_the_loss_whole) {
  for (const int columns : {40, 80, 200}) {
    const std::string line = drawn_on_terminal(columns);
    EXPECT_LT(line.size(), static_cast<size_t>(columns));
    EXPECT_TRUE(std::regex_search(line, std::regex("loss 1\\.234  .*\\d+:\\d\\d:\\d\\d( left)?$"))) << line;
    EXPECT_EQ(line.find('[') != line.npos, columns == 200) << line;
  }
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
