#pragma once

// Two reports of `lorry bench` compared, case by case.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lorry::bench {

/// What of a report is compared.
struct ReportRow {
  std::string suite, name, implementation, device, dtype;
  double median_us = 0, min_us = 0, p90_us = 0;

  /// What is equal of two rows that measure the same case.
  auto case_key() const { return std::tie(suite, name, implementation, device, dtype); }
};
struct Report {
  std::vector<std::pair<std::string, std::string>> machine;  ///< names, those of nested ones joined by dots, and values
  std::vector<ReportRow> rows;
};

/// Reads the text of a report, which may be hostile. name: of the file, for messages. Throws FormatError that says what
/// is wrong and where, for a text that is no report of this schema or has times that no measurement gives.
Report read_report(std::string_view text, const std::string& name);

enum class Verdict { same, faster, slower };
const char* name(Verdict verdict);

struct ComparedCase {
  ReportRow before, after;
  Verdict verdict;  ///< other than same: each median lies outside of what the other report had from least to p90
  double ratio() const { return after.median_us / before.median_us; }
};

struct Comparison {
  struct MachineDifference {
    std::string name, before, after;  ///< empty where a report does not say
  };
  std::vector<MachineDifference> machine;
  std::vector<ComparedCase> cases;
  std::vector<ReportRow> only_before, only_after;

  /// How much slower the worst case that is slower beyond the spread has become, in percent; none if there is none.
  std::optional<double> worst_percent() const;
};

/// Cases that occur several times in a report are compared in their order.
Comparison compare(const Report& before, const Report& after);

nlohmann::ordered_json to_json(const Comparison& comparison);

}  // namespace lorry::bench
