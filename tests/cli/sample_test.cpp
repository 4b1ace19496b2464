#include "lorry/cli/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

const std::vector<float> kLogits = {std::log(0.5f), std::log(0.125f), std::log(0.25f), std::log(0.125f)};

/// How often each index is drawn when `uniform` runs evenly over [0, 1).
std::map<int64_t, double> shares(const std::vector<float>& logits, const Sampling& sampling) {
  constexpr int kDraws = 4000;
  std::map<int64_t, double> counts;
  for (int i = 0; i < kDraws; ++i) counts[sample(logits, sampling, (i + 0.5) / kDraws)] += 1.0 / kDraws;
  return counts;
}

TEST(Sample, draws_follow_the_probabilities) {
  const auto got = shares(kLogits, {});
  EXPECT_NEAR(got.at(0), 0.5, 1e-3);
  EXPECT_NEAR(got.at(1), 0.125, 1e-3);
  EXPECT_NEAR(got.at(2), 0.25, 1e-3);
  EXPECT_NEAR(got.at(3), 0.125, 1e-3);
}

TEST(Sample, temperature_sharpens_and_flattens) {
  // Probabilities to the power of 1 / temperature, normalised.
  const auto sharp = shares(kLogits, {.temperature = 0.5});
  EXPECT_NEAR(sharp.at(0), 0.25 / (0.25 + 0.0625 + 2 * 0.015625), 1e-3);
  EXPECT_NEAR(shares(kLogits, {.temperature = 100}).at(1), 0.25, 0.01);
}

TEST(Sample, a_temperature_of_zero_takes_the_likeliest_and_the_first_of_equals) {
  EXPECT_EQ(sample(kLogits, {.temperature = 0}, 0.99), 0);
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3}, {.temperature = 0}, 0.99), 1);
}

TEST(Sample, top_k_keeps_the_k_likeliest) {
  const auto got = shares(kLogits, {.top_k = 2});
  EXPECT_EQ(got.size(), 2u);
  EXPECT_NEAR(got.at(0), 2.0 / 3, 1e-3);
  EXPECT_NEAR(got.at(2), 1.0 / 3, 1e-3);
  EXPECT_EQ(shares(kLogits, {.top_k = 1}).size(), 1u);
  EXPECT_EQ(shares(kLogits, {.top_k = 100}).size(), 4u);
}

TEST(Sample, top_p_keeps_the_fewest_that_reach_it) {
  EXPECT_EQ(shares(kLogits, {.top_p = 0.4}).size(), 1u);
  EXPECT_EQ(shares(kLogits, {.top_p = 0.6}).size(), 2u);
  EXPECT_EQ(shares(kLogits, {.top_p = 0.8}).size(), 3u);
  EXPECT_EQ(shares(kLogits, {.top_p = 1.0}).size(), 4u);
}

TEST(Sample, impossible_bytes_are_never_drawn) {
  const auto got = shares({-INFINITY, 0, NAN, 0}, {.temperature = 2});
  EXPECT_EQ(got.size(), 2u);
  EXPECT_NEAR(got.at(1), 0.5, 1e-3);
  EXPECT_EQ(sample(std::vector<float>{0, INFINITY, 5}, {}, 0.0), 1);
  EXPECT_THROW(sample(std::vector<float>{NAN, -INFINITY}, {}, 0.5), ValueError);
}

}  // namespace
}  // namespace lorry::cli
