#include "lorry/cli/plot.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lorry::cli {
namespace {

std::string drawn(const std::string& name, bool done) {
  EXPECT_TRUE(done);
  std::ifstream file(name);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(name);
  return text;
}

TEST(Plot, curves_become_an_svg_with_their_titles) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::string svg = testing::TempDir() + std::to_string(getpid()) + " it's a curve.svg";
  const std::string text =
      drawn(svg, plot_curves(svg, "A run's loss", "step", "nats per byte", {{"train", {{1, 5.5}, {2, 4.5}}}, {"held_out", {{2, 4.75}}, true}}));
  EXPECT_NE(text.find("<svg"), std::string::npos);
  EXPECT_NE(text.find("nats per byte"), std::string::npos);
  EXPECT_NE(text.find("held_out"), std::string::npos);
}

TEST(Plot, bars_become_an_svg_with_their_names) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::string svg = testing::TempDir() + std::to_string(getpid()) + "bars.svg";
  const std::string text = drawn(svg, plot_bars(svg, "overhead", "us", {{"add_", 0.14}, {"view", 0.04}}));
  EXPECT_NE(text.find("add_"), std::string::npos);
}

TEST(Plot, groups_become_an_svg_with_their_names_and_gaps) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::string svg = testing::TempDir() + std::to_string(getpid()) + "groups.svg";
  const std::string text =
      drawn(svg, plot_groups(svg, "optim", "us", {"gpt2", "tiny-4096x1024"}, {{"loop", {100, 2000}}, {"fused", {10, {}}}}, {"bytes", {8, 9.5}}));
  EXPECT_NE(text.find("tiny-4096x1024"), std::string::npos);
  EXPECT_NE(text.find("fused"), std::string::npos);
  EXPECT_NE(text.find("bytes"), std::string::npos);
}

TEST(Plot, a_place_that_cannot_be_written_is_reported) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_FALSE(plot_bars("/nonexistent/folder/bars.svg", "overhead", "us", {{"add_", 0.14}}));
}

}  // namespace
}  // namespace lorry::cli
