#pragma once

// A result of a benchmark, and the report made of results: the schema of `lorry bench --json`. The fields are listed
// once, in result.cpp; bench/schema.py reads that list for the scripts that write and read reports.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lorry/layout/device.h"
#include "lorry/profile/benchmark.h"

namespace lorry::bench {

/// Fields that do not apply stay unset and are left out of the report.
struct Result {
  std::string suite, name;
  profile::BenchmarkResult time;
  std::string dtype = "f32";
  std::optional<int64_t> bytes = {};
  std::optional<double> flops = {};
  std::optional<double> tokens_per_s = {};
  std::optional<double> ratio_to_ceiling = {};
  std::optional<int64_t> peak_bytes = {};
  std::optional<int64_t> extra_bytes = {};
  std::optional<int64_t> launches = {};
  std::optional<int64_t> state_bytes = {};
  std::optional<int64_t> counted_bytes = {};
  std::optional<int64_t> recordings = {};
  std::optional<int64_t> variants = {};
  std::optional<double> latency_us = {};
  std::optional<double> rows_per_s = {};
  std::optional<int64_t> graph_bytes = {};
  std::optional<double> capture_s = {};
  /// measured in turn with another call (profile::PairResult): which one, and how much longer this one takes. For a
  /// stage of a call it is the call without the stage; for a compiled function the same one as it is.
  std::optional<std::string> compared_with = {};
  std::optional<double> difference_us = {}, difference_low_us = {}, difference_high_us = {};
  /// the model whose parameters are used; such results are drawn next to each other; not a field of the report
  std::string model = {};
  std::string implementation = "lorry";
  Device device = default_device();

  double gb_per_s() const { return static_cast<double>(*bytes) / time.median_us / 1e3; }
  double tflop_per_s() const { return *flops / time.median_us / 1e6; }
};

/// The version of the schema that report() writes.
int report_schema();

/// {"schema": 1, "machine": describe_machine(), "results": [...]}
nlohmann::ordered_json report(const std::vector<Result>& results);

}  // namespace lorry::bench
