#include "lorry/cli/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lorry/base/error.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/machine.h"
#include "lorry/cli/plot.h"
#include "lorry/cli/report.h"

namespace lorry::cli {
namespace {

double gb_per_s(const BenchRow& row) { return static_cast<double>(*row.bytes) / row.time.median_us / 1e3; }
double tflop_per_s(const BenchRow& row) { return *row.flops / row.time.median_us / 1e6; }

nlohmann::ordered_json to_json(const BenchRow& row) {
  nlohmann::ordered_json json = {{"suite", row.suite},        {"case", row.name},         {"implementation", "lorry"},
                                 {"device", to_string(row.device)}, {"dtype", row.dtype},   {"median_us", row.time.median_us},
                                 {"min_us", row.time.min_us}, {"p90_us", row.time.p90_us}};
  if (!row.device.is_cpu()) json["submit_us"] = row.time.submit_us;
  if (row.bytes) {
    json["bytes"] = *row.bytes;
    json["gb_per_s"] = gb_per_s(row);
  }
  if (row.flops) {
    json["flops"] = *row.flops;
    json["tflop_per_s"] = tflop_per_s(row);
  }
  if (row.tokens_per_s) json["tokens_per_s"] = *row.tokens_per_s;
  if (row.ratio_to_ceiling) json["ratio_to_ceiling"] = *row.ratio_to_ceiling;
  if (row.peak_bytes) json["peak_bytes"] = *row.peak_bytes;
  return json;
}

void print(const BenchRow& row) {
  fmt::print("{:<9} {:<28} {:>11.3f} us   (least {:.3f}, p90 {:.3f})", row.suite, row.name, row.time.median_us, row.time.min_us, row.time.p90_us);
  if (row.tokens_per_s) fmt::print("   {:.1f} k tokens/s", *row.tokens_per_s / 1e3);
  if (row.flops) fmt::print("   {:.3f} TFLOP/s", tflop_per_s(row));
  if (row.ratio_to_ceiling) fmt::print("   {:.0f} GB/s, {:.0f} % of a copy", gb_per_s(row), 100 * *row.ratio_to_ceiling);
  if (row.peak_bytes) fmt::print("   {:.2f} GB at most", static_cast<double>(*row.peak_bytes) / 1e9);
  fmt::print("\n");
}

}  // namespace

int run_bench(const BenchOptions& options, const CommonOptions& common) {
  const Filter wanted = [&](const std::string& name) { return name.find(options.filter) != std::string::npos; };
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::vector<std::pair<std::string, double>> bars;
  for (const std::string& suite : options.suites) {
    if (!common.quiet) fmt::print(stderr, "measuring {}\n", suite);
    const auto known = std::ranges::find(kSuites, suite, [](const Suite& s) { return std::string_view(s.name); });
    for (const BenchRow& row : known->run(wanted)) {
      print(row);
      results.push_back(to_json(row));
      bars.emplace_back(row.suite + ": " + row.name, row.time.median_us);
    }
  }
  require<ValueError>(!results.empty(), "bench: no case contains '{}'", options.filter);
  write_json(common.json, {{"schema", 1}, {"machine", describe_machine()}, {"results", results}});
  if (!options.plot.empty())
    require<IoError>(plot_bars(options.plot, "lorry bench", "us, median", bars), "bench: cannot draw '{}'; gnuplot is not installed or failed", options.plot);
  return 0;
}

}  // namespace lorry::cli
