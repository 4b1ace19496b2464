#pragma once

// Benchmarks: each suite measures its cases and yields rows of one schema.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/measure.h"

namespace lorry::cli {

/// One measured case. Figures that do not apply stay unset and are left out of the report.
struct BenchRow {
  std::string suite, name;
  Timing time;
  std::string dtype = "f32";
  std::optional<int64_t> bytes = {};  ///< read and written by a call
  std::optional<double> flops = {};   ///< of a call
  std::optional<double> tokens_per_s = {};
};

/// True for the cases to run.
using Filter = std::function<bool(const std::string& name)>;

std::vector<BenchRow> bench_overhead(const Filter& wanted);
std::vector<BenchRow> bench_train(const Filter& wanted);

}  // namespace lorry::cli
