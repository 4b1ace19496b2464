#include "lorry/cli/metrics.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

class Metrics : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Three steps, with a validation after the second and the third.
  void write_three() const {
    MetricsFile file(path_, 0);
    for (int64_t step = 1; step <= 3; ++step) {
      file.add(StepMetrics{step, 1.0f / 3.0f + static_cast<double>(step), 1e-3, 0.5, 0.25 * static_cast<double>(step)});
      if (step > 1) file.add(ValidationMetrics{step, 10.0 + static_cast<double>(step)});
    }
  }
  std::filesystem::path path_ = testing::TempDir() + "lorry_metrics_test_" + std::to_string(getpid()) + ".jsonl";
};

TEST_F(Metrics, a_course_is_read_back_to_the_bit) {
  write_three();
  const MetricsFile file(path_, 3);
  ASSERT_EQ(file.history().steps.size(), 3u);
  EXPECT_EQ(file.history().steps[1].loss, 1.0f / 3.0f + 2.0);
  EXPECT_EQ(file.history().seconds(), 0.75);
  EXPECT_EQ(file.history().validation_loss(), 13.0);
  EXPECT_EQ(file.history().recent_loss(2), (file.history().steps[1].loss + file.history().steps[2].loss) / 2);
}

TEST_F(Metrics, what_a_checkpoint_does_not_know_is_dropped) {
  write_three();
  const std::string whole = text();
  {
    MetricsFile file(path_, 2);
    EXPECT_EQ(file.history().steps.size(), 2u);
    EXPECT_EQ(file.history().validation_loss(), 12.0);
    file.add(StepMetrics{3, 1.0f / 3.0f + 3.0, 1e-3, 0.5, 0.75});
    file.add(ValidationMetrics{3, 13.0});
  }
  EXPECT_EQ(text(), whole);
}

TEST_F(Metrics, a_last_line_cut_short_by_a_kill_is_ignored) {
  write_three();
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 4);
  EXPECT_EQ(MetricsFile(path_, 3).history().validation_loss(), 12.0);
}

TEST_F(Metrics, a_line_that_is_no_record_is_refused) {
  std::ofstream(path_) << "{\"step\": 1}\n";
  EXPECT_THROW(MetricsFile(path_, 3), FormatError);
  std::ofstream(path_) << "hello\n";
  EXPECT_THROW(MetricsFile(path_, 3), FormatError);
}

TEST_F(Metrics, a_fresh_run_starts_an_empty_file) {
  write_three();
  EXPECT_TRUE(MetricsFile(path_, 0).history().steps.empty());
  EXPECT_EQ(text(), "");
  EXPECT_THROW(RunHistory().recent_loss(1), ValueError);
}

TEST_F(Metrics, a_loss_that_is_no_number_survives) {
  { MetricsFile(path_, 0).add(StepMetrics{1, std::nan(""), 1e-3, INFINITY, 0.5}); }
  EXPECT_TRUE(std::isnan(MetricsFile(path_, 1).history().steps.at(0).loss));
}

}  // namespace
}  // namespace lorry::cli
