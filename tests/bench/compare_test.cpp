#include "lorry/bench/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/bench/result.h"
#include "tests/support/message.h"

namespace lorry::bench {
namespace {

nlohmann::json row(const std::string& name, double least, double median, double p90) {
  return {{"suite", "overhead"}, {"case", name},        {"implementation", "lorry"}, {"device", "cpu"},
          {"dtype", "f32"},      {"median_us", median}, {"min_us", least},           {"p90_us", p90}};
}
nlohmann::json file(const nlohmann::json& rows) {
  return {{"schema", 1}, {"machine", {{"cpu", "one"}, {"libraries", {{"fmt", "9.1.0"}}}}}, {"results", rows}};
}
Report read(const nlohmann::json& json) { return read_report(json.dump(), "x.json"); }

TEST(CompareReports, a_difference_counts_where_each_median_lies_outside_of_the_others_spread) {
  const Report before = read(file({row("slower", 9, 10, 11), row("faster", 9, 10, 11), row("noisy", 5, 10, 20),
                                   row("as it was", 9, 10, 11), row("gone", 1, 1, 1)}));
  const Report after = read(file({row("as it was", 9, 10.5, 12), row("noisy", 5, 15, 30), row("faster", 4, 5, 6),
                                  row("slower", 19, 20, 21), row("came", 1, 1, 1)}));
  const Comparison found = compare(before, after);
  ASSERT_EQ(found.cases.size(), 4u);
  EXPECT_EQ(found.cases[0].verdict, Verdict::slower);
  EXPECT_EQ(found.cases[0].ratio(), 2);
  EXPECT_EQ(found.cases[1].verdict, Verdict::faster);
  EXPECT_EQ(found.cases[2].verdict, Verdict::same);
  EXPECT_EQ(found.cases[3].verdict, Verdict::same);
  EXPECT_DOUBLE_EQ(found.worst_percent().value(), 100);
  ASSERT_EQ(found.only_before.size(), 1u);
  EXPECT_EQ(found.only_before[0].name, "gone");
  ASSERT_EQ(found.only_after.size(), 1u);
  EXPECT_EQ(found.only_after[0].name, "came");
  EXPECT_TRUE(found.machine.empty());
}

TEST(CompareReports, machines_that_differ_are_named_with_both_values) {
  nlohmann::json other = file(nlohmann::json::array());
  other["machine"]["cpu"] = "two";
  other["machine"]["libraries"]["fmt"] = "10";
  other["machine"]["gpus"] = "none";
  const Comparison found = compare(read(file(nlohmann::json::array())), read(other));
  ASSERT_EQ(found.machine.size(), 3u);
  EXPECT_EQ(found.machine[0].name, "cpu");
  EXPECT_EQ(found.machine[0].before, "one");
  EXPECT_EQ(found.machine[0].after, "two");
  EXPECT_EQ(found.machine[1].name, "libraries.fmt");
  EXPECT_EQ(found.machine[2].name, "gpus");
  EXPECT_EQ(found.machine[2].before, "");
  const auto json = to_json(found);
  EXPECT_EQ(json["machine_differences"].size(), 3u);
}

TEST(CompareReports, a_case_that_comes_twice_is_compared_in_order) {
  const nlohmann::json twice = file({row("a", 1, 1, 1), row("a", 2, 2, 2)});
  const Comparison found = compare(read(twice), read(twice));
  ASSERT_EQ(found.cases.size(), 2u);
  for (const ComparedCase& each : found.cases) EXPECT_EQ(each.ratio(), 1);
  EXPECT_FALSE(found.worst_percent().has_value());
}

TEST(CompareReports, what_a_bench_writes_is_read) {
  const Result result{
      .suite = "overhead", .name = "add 64", .time = {.median_us = 2, .min_us = 1, .p90_us = 3}, .device = kCPU};
  const Report read = read_report(report({result}).dump(), "x.json");
  ASSERT_EQ(read.rows.size(), 1u);
  EXPECT_EQ(read.rows[0].name, "add 64");
  EXPECT_EQ(read.rows[0].p90_us, 3);
  EXPECT_FALSE(read.machine.empty());
}

TEST(CompareReports, a_file_that_is_no_report_is_refused_with_the_place) {
  const auto said = [](const std::string& text) {
    return test::message<FormatError>([&] { read_report(text, "x.json"); });
  };
  const auto said_of = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json bad = row("a", 1, 1, 1);
    bad[key] = value;
    return said(file({row("b", 1, 1, 1), bad}).dump());
  };
  EXPECT_EQ(said(""), "bench: 'x.json' is no report of `lorry bench --json`: it is no JSON");
  EXPECT_NE(said("[]").find("the file is no object"), std::string::npos);
  EXPECT_NE(said("{}").find("the file has no 'schema'"), std::string::npos);
  EXPECT_NE(said(R"({"schema": 2})").find("it has schema 2; expected 1"), std::string::npos);
  EXPECT_NE(said(R"({"schema": 1, "machine": {}, "results": 3})").find("'results' is no list"), std::string::npos);
  EXPECT_NE(said_of("case", 3).find("'case' of result 2 is no text"), std::string::npos);
  EXPECT_NE(said_of("median_us", "1").find("'median_us' of result 2 is no time"), std::string::npos);
  EXPECT_NE(said_of("median_us", -1).find("is no time; got -1"), std::string::npos);
  EXPECT_NE(said_of("median_us", 1e300).find("is no time"), std::string::npos);
  EXPECT_NE(said_of("median_us", 0).find("are not in order"), std::string::npos);
  EXPECT_NE(said_of("min_us", 5).find("are not in order"), std::string::npos);
  EXPECT_NE(said_of("device", std::string(5000, 'x')).find("expected at most 4096"), std::string::npos);
  EXPECT_NE(said(std::string(100'000, '[')).find("nested 100000 deep"), std::string::npos);
}

TEST(CompareReports, brackets_and_colons_inside_texts_are_no_structure) {
  const std::string odd = std::string(1500, '[') + "\"\\" + std::string(1500, ':');
  const Report found = read(file(nlohmann::json::array({row(odd, 1, 1, 1), row("]]}\\", 1, 1, 1)})));
  ASSERT_EQ(found.rows.size(), 2u);
  EXPECT_EQ(found.rows[0].name, odd);
  EXPECT_EQ(found.rows[1].name, "]]}\\");
}

TEST(CompareReports, what_a_machine_cannot_say_is_refused) {
  const auto said = [](const nlohmann::json& machine) {
    const nlohmann::json text = {{"schema", 1}, {"machine", machine}, {"results", nlohmann::json::array()}};
    return test::message<FormatError>([&] { read(text); });
  };
  std::string umlauts;  // cut after 4096 bytes, the last would be half of one
  for (int i = 0; i < 3000; ++i) umlauts += "\u00fc";
  EXPECT_NE(said({{"cpu", "x" + umlauts}}).find("'cpu' of the machine has 6001 bytes; expected at most 4096"),
            std::string::npos);
  EXPECT_NE(said({{"x" + umlauts, 1}}).find("of the machine has 6001 bytes"), std::string::npos);
  EXPECT_NE(said({{"gpus", {{"list", std::vector<int>(5000, 1)}}}}).find("'gpus.list' of the machine"),
            std::string::npos);
  nlohmann::json many;
  for (int i = 0; i < 257; ++i) many[std::to_string(i)] = 1;
  EXPECT_NE(said(many).find("an object has more than 256 members"), std::string::npos);
}

TEST(CompareReports, cases_by_the_hundred_thousand_are_matched_soon) {
  // By one search of a list for each, these would take minutes.
  Report before, after;
  for (int i = 0; i < 200'000; ++i) {
    ReportRow& row = before.rows.emplace_back();
    row.name = std::to_string(i % 150'000), row.median_us = 1.0 + i, row.p90_us = 1e9;
  }
  after.rows.assign(before.rows.rbegin(), before.rows.rend());
  const Comparison found = compare(before, after);
  ASSERT_EQ(found.cases.size(), before.rows.size());
  EXPECT_TRUE(found.only_before.empty() && found.only_after.empty());
  EXPECT_EQ(found.cases[0].before.median_us, 1) << "in the order of the old report";
  EXPECT_EQ(found.cases[0].after.median_us, 150'001) << "of two cases alike, the first of the new report";
}

TEST(CompareReports, a_report_that_ends_early_or_has_a_changed_byte_is_refused_or_read) {
  const std::string text = file(nlohmann::json::array({row("a", 1, 2, 3)})).dump();
  ASSERT_EQ(read_report(text, "x").rows.size(), 1u);
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_THROW(read_report(text.substr(0, length), "x"), FormatError) << length;
  for (size_t at = 0; at < text.size(); ++at)
    for (const char byte : {'\0', '\xff', '"', '9', '[', '}'}) {
      std::string changed = text;
      changed[at] = byte;
      try {
        for (const ReportRow& each : read_report(changed, "x").rows) EXPECT_GT(each.median_us, 0);
      } catch (const FormatError&) {
      }
    }
}

TEST(CompareReports, control_characters_do_not_reach_the_terminal) {
  const Report read = read_report(file(nlohmann::json::array({row("a\x1b[2J\n", 1, 1, 1)})).dump(), "x");
  EXPECT_EQ(read.rows[0].name, "a?[2J?");
}

}  // namespace
}  // namespace lorry::bench
