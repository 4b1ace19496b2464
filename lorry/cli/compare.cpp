#include "lorry/cli/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "lorry/base/units.h"
#include "lorry/bench/compare.h"
#include "lorry/cli/case_filter.h"
#include "lorry/cli/output.h"
#include "lorry/cli/report.h"
#include "lorry/io/file.h"

namespace lorry::cli {
namespace {

bench::Report report_in(const std::string& path) {
  constexpr size_t kMost = size_t{64} << 20;
  return bench::read_report(io::read_text(path, kMost), path);
}

std::string label(const bench::ReportRow& row) {
  std::string text = row.suite + ": " + row.name;
  if (row.implementation != "lorry") text += ", " + row.implementation;
  return text;
}

void print(const Table& table, const bench::Comparison& comparison) {
  for (const auto& [name, before, after] : comparison.machine)
    table.print("machine      {}: {} before, {} now\n", name, before.empty() ? "not said" : before,
                after.empty() ? "not said" : after);
  size_t width = 24;
  for (const bench::ComparedCase& each : comparison.cases) width = std::max(width, label(each.before).size());
  for (const bench::ComparedCase& each : comparison.cases)
    table.print_row(
        {fmt::format("{:<{}}", label(each.before), width),
         fmt::format("{:<6} {:<5}", each.before.device, each.before.dtype),
         fmt::format("{:>8}", duration_text(each.before.median_us)),
         fmt::format("{:>8}", duration_text(each.after.median_us)),
         fmt::format("{:>6.3f} x {}", each.ratio(), each.verdict == bench::Verdict::same ? "" : name(each.verdict))});
  for (const bench::ReportRow& row : comparison.only_before) table.print("only before  {}\n", label(row));
  for (const bench::ReportRow& row : comparison.only_after) table.print("only now     {}\n", label(row));
}

}  // namespace

int run_compare(const BenchOptions& options, const CommonOptions& common) {
  require_writable(common.json);
  bench::Report before = report_in(options.compare[0]), after = report_in(options.compare[1]);
  CaseFilter filter(options.filter);
  for (bench::Report* report : {&before, &after})
    std::erase_if(report->rows, [&](const bench::ReportRow& row) { return !filter(row.name); });
  if (before.rows.empty() && after.rows.empty()) filter.refuse();
  const bench::Comparison comparison = bench::compare(before, after);
  const Table table{common.json};
  print(table, comparison);
  write_json(common.json, bench::to_json(comparison));
  const std::optional<double> worst = comparison.worst_percent();
  if (!options.fail_above || !worst || *worst <= *options.fail_above) return 0;
  fmt::print(stderr, "lorry: bench: a case is slower by {:.1f} % and beyond the spread; expected at most {} %\n",
             *worst, *options.fail_above);
  return 1;
}

}  // namespace lorry::cli
