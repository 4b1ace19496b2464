#include "lorry/bench/plot.h"

#include <gtest/gtest.h>

#include <string>

namespace lorry::bench {
namespace {

TEST(Plot, curves_become_an_svg_with_their_titles) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::string text = plot_curves("A run's loss", "step", "nats per byte",
                                       {{"train", {{1, 5.5}, {2, 4.5}}}, {"held_out", {{2, 4.75}}, true}})
                               .value_or("");
  EXPECT_NE(text.find("<svg"), std::string::npos);
  EXPECT_NE(text.find("nats per byte"), std::string::npos);
  EXPECT_NE(text.find("held_out"), std::string::npos);
}

TEST(Plot, bars_become_an_svg_with_their_names) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::string text = plot_bars("overhead", "us", {{"add_", 0.14}, {"view", 0.04}}).value_or("");
  EXPECT_NE(text.find("add_"), std::string::npos);
}

TEST(Plot, groups_become_an_svg_with_their_names_and_gaps) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::string text = plot_groups("optim", "us", {"gpt2", "tiny-4096x1024"},
                                       {{"loop", {100, 2000}}, {"fused", {10, {}}}}, {"bytes", {8, 9.5}})
                               .value_or("");
  EXPECT_NE(text.find("tiny-4096x1024"), std::string::npos);
  EXPECT_NE(text.find("fused"), std::string::npos);
  EXPECT_NE(text.find("bytes"), std::string::npos);
}

TEST(Plot, what_gnuplot_refuses_is_nothing) {
  if (!can_plot()) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_FALSE(plot_curves("no points", "step", "loss", {{"train", {}}}));
}

}  // namespace
}  // namespace lorry::bench
