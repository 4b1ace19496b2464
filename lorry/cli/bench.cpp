#include "lorry/cli/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lorry/base/error.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/machine.h"
#include "lorry/cli/output.h"
#include "lorry/cli/plot.h"
#include "lorry/cli/report.h"
#include "lorry/cli/units.h"

namespace lorry::cli {
namespace {

double gb_per_s(const BenchRow& row) { return static_cast<double>(*row.bytes) / row.time.median_us / 1e3; }
double tflop_per_s(const BenchRow& row) { return *row.flops / row.time.median_us / 1e6; }

nlohmann::ordered_json to_json(const BenchRow& row) {
  nlohmann::ordered_json json = {{"suite", row.suite},        {"case", row.name},
                                 {"implementation", "lorry"}, {"device", to_string(row.device)},
                                 {"dtype", row.dtype},        {"median_us", row.time.median_us},
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
  if (row.extra_bytes) json["extra_bytes"] = *row.extra_bytes;
  if (row.launches) json["launches"] = *row.launches;
  if (row.state_bytes) json["state_bytes"] = *row.state_bytes;
  if (row.counted_bytes) json["counted_bytes"] = *row.counted_bytes;
  return json;
}

void print(const Table& table, const BenchRow& row, size_t width) {
  std::vector<std::string> parts = {
      fmt::format("{:<9} {:<{}}", row.suite, row.name, width), fmt::format("{:>7}", duration_text(row.time.median_us)),
      fmt::format("(least {}, p90 {})", duration_text(row.time.min_us), duration_text(row.time.p90_us))};
  if (row.tokens_per_s) parts.push_back(quantity(*row.tokens_per_s, " tokens/s"));
  if (row.flops) parts.push_back(quantity(1e12 * tflop_per_s(row), "FLOP/s"));
  if (row.ratio_to_ceiling)
    parts.push_back(
        fmt::format("{}, {:.3g} % of a copy", quantity(1e9 * gb_per_s(row), "B/s"), 100 * *row.ratio_to_ceiling));
  if (row.peak_bytes) parts.push_back(bytes_text(row.peak_bytes) + " at most");
  if (row.launches) parts.push_back(fmt::format("{} launch{}", *row.launches, *row.launches == 1 ? "" : "es"));
  if (row.extra_bytes.value_or(0) > 0) parts.push_back(bytes_text(row.extra_bytes) + " more");
  table.print_row(parts);
}

/// Rows over models as bars side by side, of what was measured over several of them, with the time that their bytes
/// take at a copy's rate; other rows as a bar each.
std::optional<std::string> draw(const std::vector<BenchRow>& rows) {
  std::vector<std::string> models;
  for (const BenchRow& row : rows)
    if (!row.model.empty() && std::ranges::find(models, row.model) == models.end()) models.push_back(row.model);
  if (models.empty()) {
    std::vector<std::pair<std::string, double>> bars;
    for (const BenchRow& row : rows) bars.emplace_back(row.suite + ": " + row.name, row.time.median_us);
    return plot_bars("lorry bench", "us, median", bars);
  }
  std::vector<Series> bars;
  Series copies{.title = "bytes of the first at a copy's rate",
                .values = std::vector<std::optional<double>>(models.size())};
  for (const BenchRow& row : rows) {
    if (row.model.empty()) continue;
    const std::string way = row.name.substr(row.model.size() + 1);
    auto series = std::ranges::find(bars, way, &Series::title);
    if (series == bars.end())
      series = bars.insert(bars.end(), {.title = way, .values = std::vector<std::optional<double>>(models.size())});
    const size_t at = static_cast<size_t>(std::ranges::find(models, row.model) - models.begin());
    series->values[at] = row.time.median_us;
    if (row.ratio_to_ceiling && !copies.values[at]) copies.values[at] = row.time.median_us * *row.ratio_to_ceiling;
  }
  if (models.size() > 1)
    std::erase_if(bars, [](const Series& s) {
      return std::ranges::count_if(s.values, [](const auto& v) { return v.has_value(); }) < 2;
    });
  return plot_groups("lorry bench", "us, median", models, bars, copies);
}

}  // namespace

int run_bench(const BenchOptions& options, const CommonOptions& common) {
  const Filter wanted = [&](const std::string& name) { return name.find(options.filter) != std::string::npos; };
  require_writable(common.json);
  require_writable(options.plot);
  require<IoError>(options.plot.empty() || can_plot(), "bench: cannot draw '{}'; gnuplot is not installed",
                   options.plot);
  const Table table{common.json, options.plot};
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::vector<BenchRow> measured;
  for (const std::string& suite : options.suites) {
    if (!common.quiet) fmt::print(stderr, "measuring {}\n", suite);
    const auto known = std::ranges::find(kSuites, suite, [](const Suite& s) { return std::string_view(s.name); });
    const std::vector<BenchRow> rows = options.kept.given() ? bench_kept(wanted, options.kept) : known->run(wanted);
    size_t width = 24;
    for (const BenchRow& row : rows) width = std::max(width, row.name.size());
    for (const BenchRow& row : rows) {
      if (!options.kept.report) print(table, row, width);
      results.push_back(to_json(row));
    }
    if (options.kept.report) print_report(rows, table);
    measured.insert(measured.end(), rows.begin(), rows.end());
  }
  require<ValueError>(!results.empty(), "bench: no case contains '{}'", options.filter);
  write_json(common.json, {{"schema", 1}, {"machine", describe_machine()}, {"results", results}});
  if (!options.plot.empty()) {
    const std::optional<std::string> svg = draw(measured);
    require<IoError>(svg.has_value(), "bench: cannot draw '{}'; gnuplot failed", options.plot);
    write_file(options.plot, *svg);
  }
  return 0;
}

}  // namespace lorry::cli
