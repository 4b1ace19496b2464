#include "lorry/bench/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/bench/result.h"

namespace lorry::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = size_t{64} << 20, kMostText = 4096;
constexpr double kMostUs = 1e15;  // thirty years
constexpr int kMostDepth = 8;
// Objects are searched from their first member on, and nested ones call themselves.
constexpr int kMostMembers = 256, kMostNested = 1000;

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  template <class... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    raise<FormatError>("bench: '{}' is no report of `lorry bench --json`: {}", name_,
                       fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  const Json& member(const Json& json, const char* key, const std::string& where) const {
    if (!json.is_object()) refuse("{} is no object", where);
    const auto found = json.find(key);
    if (found == json.end()) refuse("{} has no '{}'", where, key);
    return *found;
  }
  std::string text(const Json& json, const char* key, const std::string& where) const {
    const Json& value = member(json, key, where);
    if (!value.is_string()) refuse("'{}' of {} is no text", key, where);
    return printable(value.get<std::string>(), key, where);
  }
  double time(const Json& json, const char* key, const std::string& where) const {
    const Json& value = member(json, key, where);
    const double us = value.is_number() ? value.get<double>() : std::nan("");
    if (!(us >= 0 && us <= kMostUs))
      refuse("'{}' of {} is no time; got {}", key, where, value.dump(-1, ' ', true).substr(0, 80));
    return us;
  }
  void flatten(const Json& json, const std::string& path, int depth,
               std::vector<std::pair<std::string, std::string>>& to) const {
    if (json.is_object() && depth < kMostDepth) {
      for (const auto& [key, value] : json.items())
        flatten(value, (path.empty() ? "" : path + ".") + printable(key, "a name", kMachine), depth + 1, to);
      return;
    }
    to.emplace_back(path, printable(json.is_string() ? json.get<std::string>() : json.dump(), path, kMachine));
  }
  /// Refuses, before it is parsed, a text whose structure would take much memory or time.
  void check_structure(std::string_view text) const {
    int depth = 0, deepest = 0;
    std::array<int, kMostNested + 1> members{};  // of the object at each depth
    bool quoted = false;
    for (size_t at = 0; at < text.size(); ++at) {
      const char c = text[at];
      if (c == '"') {
        quoted = !quoted;
      } else if (quoted) {
        at += c == '\\';
      } else if (c == '[' || c == '{') {
        deepest = std::max(deepest, ++depth);
        if (depth <= kMostNested) members[static_cast<size_t>(depth)] = 0;
      } else if (c == ']' || c == '}') {
        depth = std::max(0, depth - 1);
      } else if (c == ':' && depth <= kMostNested && ++members[static_cast<size_t>(depth)] > kMostMembers) {
        refuse("an object has more than {} members", kMostMembers);
      }
    }
    if (deepest > kMostNested) refuse("it is nested {} deep", deepest);
  }

 private:
  static constexpr const char* kMachine = "the machine";

  /// Control characters could change what a terminal shows.
  std::string printable(std::string text, std::string_view key, std::string_view where) const {
    if (text.size() > kMostText)
      refuse("'{}' of {} has {} bytes; expected at most {}", key, where, text.size(), kMostText);
    std::ranges::replace_if(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
    return text;
  }

  const std::string& name_;
};

/// Whether what took `us` is not what `other` measured.
bool is_outside(double us, const ReportRow& other) { return us < other.min_us || us > other.p90_us; }

Verdict verdict_of(const ReportRow& before, const ReportRow& after) {
  if (!is_outside(after.median_us, before) || !is_outside(before.median_us, after)) return Verdict::same;
  return after.median_us > before.median_us ? Verdict::slower : Verdict::faster;
}

Json case_of(const ReportRow& row) {
  return {{"suite", row.suite},
          {"case", row.name},
          {"implementation", row.implementation},
          {"device", row.device},
          {"dtype", row.dtype}};
}

}  // namespace

Report read_report(std::string_view text, const std::string& name) {
  const Reader reader(name);
  if (text.size() > kMostBytes) reader.refuse("it has {} bytes; expected at most {}", text.size(), kMostBytes);
  reader.check_structure(text);
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) reader.refuse("it is no JSON");
  const Json& schema = reader.member(json, "schema", "the file");
  if (!schema.is_number_integer() || schema.get<int64_t>() != report_schema())
    reader.refuse("it has schema {}; expected {}", schema.dump(-1, ' ', false, Json::error_handler_t::replace),
                  report_schema());
  Report report;
  reader.flatten(reader.member(json, "machine", "the file"), "", 0, report.machine);
  const Json& results = reader.member(json, "results", "the file");
  if (!results.is_array()) reader.refuse("'results' is no list");
  for (const Json& result : results) {
    const std::string where = fmt::format("result {}", report.rows.size() + 1);
    ReportRow row{.suite = reader.text(result, "suite", where),
                  .name = reader.text(result, "case", where),
                  .implementation = reader.text(result, "implementation", where),
                  .device = reader.text(result, "device", where),
                  .dtype = reader.text(result, "dtype", where),
                  .median_us = reader.time(result, "median_us", where)};
    // Scripts may write a median alone.
    row.min_us = result.contains("min_us") ? reader.time(result, "min_us", where) : row.median_us;
    row.p90_us = result.contains("p90_us") ? reader.time(result, "p90_us", where) : row.median_us;
    if (!(row.median_us > 0 && row.min_us <= row.median_us && row.median_us <= row.p90_us))
      reader.refuse("the times of {} are not in order; got {} least, {} median, {} p90", where, row.min_us,
                    row.median_us, row.p90_us);
    report.rows.push_back(std::move(row));
  }
  return report;
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
  }
  return "same";
}

std::optional<double> Comparison::worst_percent() const {
  std::optional<double> worst;
  for (const ComparedCase& each : cases)
    if (each.verdict == Verdict::slower) worst = std::max(worst.value_or(0), 100 * (each.ratio() - 1));
  return worst;
}

Comparison compare(const Report& before, const Report& after) {
  Comparison result;
  const std::map<std::string, std::string> was(before.machine.begin(), before.machine.end()),
      is(after.machine.begin(), after.machine.end());
  const auto value_of = [](const std::map<std::string, std::string>& machine, const std::string& key) {
    const auto found = machine.find(key);
    return found == machine.end() ? std::string() : found->second;
  };
  for (const auto& [key, value] : before.machine)
    if (const std::string now = value_of(is, key); now != value) result.machine.push_back({key, value, now});
  for (const auto& [key, value] : after.machine)
    if (value_of(was, key).empty() && !value.empty()) result.machine.push_back({key, "", value});
  // Rows of `after` that have no partner yet; equal keys keep their order.
  std::multimap<decltype(ReportRow().case_key()), size_t> waiting;
  for (size_t at = 0; at < after.rows.size(); ++at) waiting.emplace(after.rows[at].case_key(), at);
  std::vector<bool> used(after.rows.size());
  for (const ReportRow& row : before.rows) {
    const auto found = waiting.lower_bound(row.case_key());
    if (found == waiting.end() || found->first != row.case_key()) {
      result.only_before.push_back(row);
      continue;
    }
    const size_t at = found->second;
    waiting.erase(found);
    used[at] = true;
    result.cases.push_back({row, after.rows[at], verdict_of(row, after.rows[at])});
  }
  for (size_t at = 0; at < after.rows.size(); ++at)
    if (!used[at]) result.only_after.push_back(after.rows[at]);
  return result;
}

Json to_json(const Comparison& comparison) {
  Json machine = Json::array(), cases = Json::array(), before = Json::array(), after = Json::array();
  for (const auto& difference : comparison.machine)
    machine.push_back({{"name", difference.name}, {"old", difference.before}, {"new", difference.after}});
  for (const ComparedCase& each : comparison.cases) {
    Json row = case_of(each.before);
    row["old_us"] = each.before.median_us;
    row["new_us"] = each.after.median_us;
    row["ratio"] = each.ratio();
    row["verdict"] = name(each.verdict);
    cases.push_back(std::move(row));
  }
  for (const ReportRow& row : comparison.only_before) before.push_back(case_of(row));
  for (const ReportRow& row : comparison.only_after) after.push_back(case_of(row));
  return {{"schema", report_schema()},
          {"machine_differences", machine},
          {"cases", cases},
          {"only_old", before},
          {"only_new", after}};
}

}  // namespace lorry::bench
