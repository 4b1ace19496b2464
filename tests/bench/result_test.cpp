// What a result says in a report.

#include "lorry/bench/result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lorry::bench {
namespace {

TEST(BenchResult, a_report_holds_the_schema_the_machine_and_the_figures_that_apply) {
  const nlohmann::ordered_json json = report({{.suite = "memory",
                                               .name = "copy",
                                               .time = {.median_us = 2, .min_us = 1, .p90_us = 3, .submit_us = 1.5},
                                               .bytes = 4000,
                                               .device = kCPU}});
  EXPECT_EQ(json["schema"], 1);
  EXPECT_TRUE(json["machine"].contains("cpu"));
  const nlohmann::ordered_json expected = {{"suite", "memory"}, {"case", "copy"}, {"implementation", "lorry"},
                                           {"device", "cpu"},   {"dtype", "f32"}, {"median_us", 2.0},
                                           {"min_us", 1.0},     {"p90_us", 3.0},  {"bytes", 4000},
                                           {"gb_per_s", 2.0}};
  EXPECT_EQ(json["results"].size(), 1u);
  EXPECT_EQ(json["results"][0], expected);
}

TEST(BenchResult, a_gpu_tells_how_long_the_host_took_and_what_is_unset_is_left_out) {
  Result result{.suite = "matmul", .name = "square", .time = {.median_us = 4, .submit_us = 1}, .flops = 8e6};
  result.device = Device{DeviceType::cuda, 0};
  const nlohmann::ordered_json row = report({result})["results"][0];
  EXPECT_EQ(row["submit_us"], 1.0);
  EXPECT_EQ(row["device"], "cuda:0");
  EXPECT_EQ(row["tflop_per_s"], 2.0);
  EXPECT_FALSE(row.contains("bytes"));
  EXPECT_FALSE(row.contains("launches"));
}

}  // namespace
}  // namespace lorry::bench
