#include "lorry/bench/lossy_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace lorry::bench {
namespace {

TEST(LossyJson, holds_every_figure_of_a_model) {
  profile::ModelLoss loss;
  loss.tensors.push_back({.name = "w",
                          .scheme = "block8",
                          .elements = 8,
                          .original_bytes = 32,
                          .compressed_bytes = 12,
                          .smallest = -1,
                          .largest = 2,
                          .max_error = 0.5,
                          .rms_error = 0.25,
                          .snr_db = 10,
                          .cosine = 0.75});
  loss.total.name = "total";
  loss.total.snr_db = std::numeric_limits<double>::infinity();
  const nlohmann::ordered_json json = to_json(loss);
  const nlohmann::ordered_json row = {{"name", "w"},          {"scheme", "block8"},     {"elements", 8},
                                      {"original_bytes", 32}, {"compressed_bytes", 12}, {"rate", 0.375},
                                      {"smallest", -1.0},     {"largest", 2.0},         {"max_error", 0.5},
                                      {"rms_error", 0.25},    {"snr_db", 10.0},         {"cosine", 0.75}};
  EXPECT_EQ(json["tensors"].size(), 1u);
  EXPECT_EQ(json["tensors"][0], row);
  EXPECT_EQ(json["total"]["name"], "total");
  EXPECT_TRUE(json["total"]["snr_db"].is_null()) << "JSON has no infinities";
}

TEST(LossyJson, holds_the_losses_by_layer) {
  const profile::LossByLayer loss{
      .scheme = "e4m3",
      .loss = 2,
      .layers = {{.name = "a", .original_bytes = 8, .compressed_bytes = 2, .loss = 2.5, .added = 0.5}},
      .all = {.name = "all", .loss = 3, .added = 1}};
  const nlohmann::ordered_json json = to_json(loss);
  EXPECT_EQ(json["scheme"], "e4m3");
  EXPECT_EQ(json["loss"], 2.0);
  EXPECT_EQ(json["layers"][0]["name"], "a");
  EXPECT_EQ(json["layers"][0]["compressed_bytes"], 2);
  EXPECT_EQ(json["layers"][0]["added"], 0.5);
  EXPECT_EQ(json["all"]["loss"], 3.0);
}

}  // namespace
}  // namespace lorry::bench
