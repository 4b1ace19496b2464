#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lorry/base/error.h"
#include "lorry/base/units.h"
#include "lorry/bench/operators.h"
#include "lorry/bench/optim_memory.h"
#include "lorry/bench/plot.h"
#include "lorry/bench/plot_results.h"
#include "lorry/bench/replay.h"
#include "lorry/cli/case_filter.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/compare.h"
#include "lorry/cli/output.h"
#include "lorry/cli/report.h"
#include "lorry/cli/train_suite.h"
#include "lorry/parallel/launch.h"

namespace lorry::cli {
namespace {

using bench::Result;

size_t name_width(const std::vector<Result>& results, size_t least) {
  for (const Result& result : results) least = std::max(least, result.name.size());
  return least;
}

void print(const Table& table, const Result& result, size_t width) {
  std::vector<std::string> parts = {
      fmt::format("{:<9} {:<{}}", result.suite, result.name, width),
      fmt::format("{:>7}", duration_text(result.time.median_us)),
      fmt::format("(least {}, p90 {})", duration_text(result.time.min_us), duration_text(result.time.p90_us))};
  if (result.implementation != "lorry") parts.push_back(result.implementation);
  if (result.tokens_per_s) parts.push_back(quantity(*result.tokens_per_s, " tokens/s"));
  if (result.flops) parts.push_back(quantity(1e12 * result.tflop_per_s(), "FLOP/s"));
  if (result.ratio_to_ceiling && result.flops)
    parts.push_back(fmt::format("{:.3g} % of the best", 100 * *result.ratio_to_ceiling));
  else if (result.ratio_to_ceiling)
    parts.push_back(fmt::format("{}, {:.3g} % of {}", quantity(1e9 * result.gb_per_s(), "B/s"),
                                100 * *result.ratio_to_ceiling, result.suite == "transfers" ? "the link" : "a copy"));
  if (result.suite == "parallel" && result.bytes)
    parts.push_back(quantity(1e9 * result.gb_per_s(), "B/s") + " of the bus");
  if (result.difference_us)
    parts.push_back(fmt::format("{}{} ({} to {}) over {}", *result.difference_us < 0 ? "" : "+",
                                duration_text(*result.difference_us), duration_text(*result.difference_low_us),
                                duration_text(*result.difference_high_us), *result.compared_with));
  if (result.peak_bytes) parts.push_back(bytes_text(result.peak_bytes) + " at most");
  if (result.launches) parts.push_back(fmt::format("{} launch{}", *result.launches, *result.launches == 1 ? "" : "es"));
  if (result.latency_us) parts.push_back(duration_text(*result.latency_us) + " waited for");
  if (result.rows_per_s) parts.push_back(quantity(*result.rows_per_s, " rows/s"));
  if (result.graph_bytes) parts.push_back(bytes_text(result.graph_bytes) + " of graphs");
  if (result.capture_s) parts.push_back(duration_text(1e6 * *result.capture_s) + " to prepare");
  if (result.extra_bytes.value_or(0) > 0) parts.push_back(bytes_text(result.extra_bytes) + " more");
  table.print_row(parts);
}

/// The table of `bench optim --report`.
void print_report(const std::vector<Result>& results, const Table& table) {
  const size_t width = name_width(results, 20);
  constexpr const char* kFormat = "{:<{}} {:>9} {:>9} {:>9} {:>9} {:>9}\n";
  table.print(kFormat, "", width, "states", "expected", "measured", "launches", "time");
  for (const Result& result : results)
    if (result.state_bytes)
      table.print(kFormat, result.name, width, bytes_text(result.state_bytes), bytes_text(result.counted_bytes),
                  bytes_text(result.extra_bytes), result.launches ? fmt::format("{}", *result.launches) : "-",
                  duration_text(result.time.median_us));
}

std::vector<Result> run_suite(const std::string& name, const BenchOptions& options, const bench::Filter& filter) {
  if (options.optim_memory.given()) return bench::optim_memory_suite(filter, options.optim_memory);
  if (name == "generate") return bench::generate_suite(filter, options.replay.executions);
  if (name == "parallel") return bench::parallel_suite(filter, options.parallel);
  if (options.replay.given()) return bench::replay_suite(filter, options.replay);
  const std::vector<bench::Suite> suites = bench_suites();
  const auto suite = std::ranges::find(suites, name, [](const bench::Suite& s) { return std::string_view(s.name); });
  require<DeviceError>(suite->run != nullptr, "bench: {} needs a GPU, and this build has no CUDA", name);
  return suite->run(filter);
}

}  // namespace

int run_bench(const BenchOptions& options, const CommonOptions& common) {
  if (!options.compare.empty()) return run_compare(options, common);
  require_writable(common.json);
  require_writable(options.plot);
  require<IoError>(options.plot.empty() || bench::can_plot(), "bench: cannot draw '{}'; gnuplot is not installed",
                   options.plot);
  const Table table{common.json, options.plot};
  std::vector<Result> all;
  CaseFilter filter(options.filter);
  if (options.rounds) {
    require<ValueError>(common.json.empty() && options.plot.empty(),
                        "bench: --rounds writes to standard output alone; got --json or --plot with it");
    bench::operator_rounds(options.suites.front(), std::ref(filter), std::cin, std::cout);
    return 0;
  }
  for (const std::string& suite : options.suites) {
    if (!common.quiet && parallel::launched().rank == 0) fmt::print(stderr, "measuring {}\n", suite);
    const std::vector<Result> results = run_suite(suite, options, std::ref(filter));
    if (options.optim_memory.report)
      print_report(results, table);
    else
      for (const size_t width = name_width(results, 24); const Result& result : results) print(table, result, width);
    all.insert(all.end(), results.begin(), results.end());
  }
  if (all.empty() && parallel::launched().rank > 0) return 0;  // rank 0 reports for all
  if (all.empty()) filter.refuse();
  write_json(common.json, bench::report(all));
  if (!options.plot.empty()) {
    const std::optional<std::string> svg = bench::plot_results(all);
    require<IoError>(svg.has_value(), "bench: cannot draw '{}'; gnuplot failed", options.plot);
    write_file(options.plot, *svg);
  }
  return 0;
}

}  // namespace lorry::cli
