// The lessons: that each has what it promises, that its words follow from its times, and that the code it shows is cut
// out of its source.

#include "lorry/bench/lessons.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lorry/base/error.h"
#include "lorry/bench/lessons/json.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/page.h"
#include "lorry/bench/lessons/plots.h"
#include "lorry/bench/lessons/source.h"
#include "tests/support/message.h"

namespace lorry::bench::lessons {
namespace {

constexpr const char* kSource = R"(
void lesson(LessonRun& run) {
  // given: sums
  const Tensor x = ones({n});
  const Tensor y = x;

  run.compare("sums", "sums of ones");
  run.way("one line", {.bytes = 8}, [&] { return x.sum(); });
  run.way("a block", {}, [&] {
    for (int i = 0; i < n; ++i) {
      total += "}{"[i % 2];
    }
    return total;
  });
  run.way_with_setup(
      "with a set-up", {}, [&] { return ones({n}); }, [&](Tensor& z) { z.add_(1); });
  if (name == "one line") run.note("named again");
}
)";

const Ceilings kCeilings{.copy_bytes = 1e4, .flops = {{"f32", 1e5}}, .call_us = 0.1};

profile::BenchmarkResult time(double median_us, double min_us) {
  return {.median_us = median_us, .min_us = min_us, .p90_us = 2 * median_us, .samples = 9, .calls_per_sample = 1};
}

/// The verdict for two ways with these times.
std::string verdict(const profile::BenchmarkResult& slow, const profile::BenchmarkResult& good, bool clocks = false) {
  Lesson lesson;
  const Settings settings{.device = kCPU};
  LessonRun run(lesson, settings, kCeilings, kSource);
  run.compare("sums", "sums of ones");
  run.add("one line", "slow", {}, slow);
  run.add("a block", "good", {}, good);
  run.conclude({.faster = "FASTER", .same = "SAME", .slower = "SLOWER", .clocks = clocks});
  return lesson.comparisons.at(0).verdict;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

TEST(LessonSource, the_body_of_the_lambda_after_a_name_is_shown_without_its_indentation) {
  EXPECT_EQ(code_of(kSource, "one line"), "return x.sum();");
  EXPECT_EQ(code_of(kSource, "a block"), "for (int i = 0; i < n; ++i) {\n  total += \"}{\"[i % 2];\n}\nreturn total;");
  EXPECT_EQ(code_of(kSource, "with a set-up"),
            "// before each call, not timed:\nreturn ones({n});\n// timed:\nz.add_(1);");
  EXPECT_EQ(given_of(kSource, "sums"), "const Tensor x = ones({n});\nconst Tensor y = x;");
  EXPECT_EQ(given_of(kSource, "products"), "");
  EXPECT_EQ(function_of("int f() {\n  return 1;\n}\nint g() {}", "int f"), "int f() {\n  return 1;\n}");
}

TEST(LessonSource, a_name_without_code_and_a_name_used_twice_are_refused) {
  EXPECT_TRUE(contains(test::message<ValueError>([] { code_of(kSource, "sums of ones"); }), "'sums of ones'"));
  const std::string twice = std::string(kSource) + kSource;
  EXPECT_TRUE(contains(test::message<ValueError>([&] { code_of(twice, "a block"); }), "two ways"));
  EXPECT_THROW(source_of("none.cpp"), ValueError);
}

TEST(LessonVerdict, the_words_follow_from_the_ratio) {
  EXPECT_EQ(verdict(time(30, 28), time(10, 9)), "\"good\" is 3.00 times as fast as \"slow\". FASTER");
  EXPECT_EQ(verdict(time(10, 9), time(25, 24)), "Here \"slow\" is 2.50 times as fast as \"good\". SLOWER");
  EXPECT_EQ(verdict(time(10.2, 9), time(10, 9)), "\"slow\" and \"good\" do not differ clearly (ratio 1.02). SAME");
  EXPECT_EQ(verdict(time(30, 28), time(10, 9), true),
            "\"slow\" says 30.0 us, \"good\" 10.0 us: 3.00 times as much. FASTER");
}

TEST(LessonVerdict, medians_that_the_least_times_contradict_are_no_difference) {
  EXPECT_TRUE(contains(verdict(time(30, 9), time(10, 9)), "SAME"));
  EXPECT_TRUE(contains(verdict(time(30, 8), time(10, 9)), "SAME"));
}

TEST(LessonVerdict, a_bound_is_the_largest_of_those_known) {
  EXPECT_FALSE(bound({}, kCeilings));
  EXPECT_FALSE(bound({.bytes = 8}, {}));
  const Bound by_memory = bound({.bytes = 2e4, .flops = 1e5, .calls = 3}, kCeilings).value();
  EXPECT_EQ(by_memory.what, "memory");
  EXPECT_DOUBLE_EQ(by_memory.us, 2);
  const Bound by_arithmetic = bound({.bytes = 2e4, .flops = 3e5}, kCeilings).value();
  EXPECT_EQ(by_arithmetic.what, "arithmetic");
  EXPECT_DOUBLE_EQ(by_arithmetic.us, 3);
  EXPECT_EQ(bound({.bytes = 8, .calls = 3}, kCeilings).value().what, "calls");
  EXPECT_EQ(bound({.bytes = 8, .flops = 3e5, .dtype = "f64"}, kCeilings).value().what, "memory");
}

TEST(LessonPage, texts_are_escaped) {
  Lesson lesson{.number = 3, .title = "<title>", .teaches = "a & b"};
  lesson.comparisons.push_back({.title = "<t>", .given = "x < 1", .verdict = "<v>"});
  for (const char* name : {"<one>", "<two>"})
    lesson.comparisons[0].ways.push_back({.name = name, .code = "a < b && c", .time = time(2, 1), .work = {}});
  lesson.error = "<error>";
  lesson.notes = {"<note>"};
  lesson.tried = {{"<what>", "<code>", "<outcome>"}};
  const std::string page = page_of({lesson}, kCeilings, {.device = kCPU});
  for (const char* raw : {"<t>", "<one>", "<two>", "<v>", "<error>", "<note>", "<what>", "<outcome>", "a < b"})
    EXPECT_FALSE(contains(page, raw)) << raw;
  for (const char* shown : {"&lt;one&gt;", "a &lt; b &amp;&amp; c", "x &lt; 1", "&lt;outcome&gt;", "&lt;error&gt;"})
    EXPECT_TRUE(contains(page, shown)) << shown;
}

TEST(LessonPage, a_bar_has_its_share_of_the_longest) {
  Comparison comparison{.title = "t"};
  for (const double us : {20.0, 5.0})
    comparison.ways.push_back({.name = "w", .code = "c", .time = time(us, us), .work = {}});
  const std::string linear = bars_of(comparison);
  EXPECT_TRUE(contains(linear, "width=\"100.00%\"")) << linear;
  EXPECT_TRUE(contains(linear, "width=\"25.00%\"")) << linear;
  comparison.ways[1].time = time(0.2, 0.2);
  const std::string logarithmic = bars_of(comparison);  // from 100 ns to 100 us: 200 ns is a tenth of three powers on
  EXPECT_TRUE(contains(logarithmic, "width=\"10.03%\"")) << logarithmic;
  EXPECT_TRUE(contains(logarithmic, "width=\"76.70%\"")) << logarithmic;
}

TEST(LessonPage, the_roofline_needs_ceilings) {
  EXPECT_EQ(roofline_of({}, {}), "");
  EXPECT_TRUE(contains(roofline_of(kCeilings, {}), ">f32</text>"));
}

Lesson run_failing(void (*body)(LessonRun&)) {
  return run({.number = 1, .title = "t", .teaches = "", .file = "batching.cpp", .run = body}, {.device = kCPU},
             kCeilings);
}

TEST(Lessons, an_error_ends_a_lesson_and_keeps_what_it_has) {
  const Lesson lesson = run_failing([](LessonRun& run) {
    run.compare("small products");
    run.add("one after the other", "one", {}, time(2, 2));
    run.add("as one batch", "two", {}, time(1, 1));
    run.conclude({});
    run.compare("rows of a product");
    run.add("a row at a time", "three", {}, time(2, 2));
    raise<OutOfMemory>("no memory is left");
  });
  EXPECT_EQ(lesson.error, "no memory is left");
  ASSERT_EQ(lesson.comparisons.size(), 1u);
  EXPECT_EQ(lesson.comparisons[0].title, "small products");
  EXPECT_TRUE(run_failing([](LessonRun&) { throw std::bad_alloc(); }).error == "the host is out of memory");
}

TEST(Lessons, numbers_are_those_of_the_rows) {
  int number = 0;
  for (const Entry& entry : table()) EXPECT_EQ(entry.number, number++);
  EXPECT_EQ(number, 15);
}

class EveryLesson : public testing::TestWithParam<int> {};

TEST_P(EveryLesson, has_two_ways_with_code_and_words_for_their_ratio) {
  const Settings settings{.device = kCPU, .seconds = 0.002, .child = {LORRY_COMMAND, "lessons", "--child"}};
  const Lesson lesson = run(table()[static_cast<size_t>(GetParam())], settings, kCeilings);
  EXPECT_EQ(lesson.error, "");
  EXPECT_FALSE(lesson.teaches.empty());
  ASSERT_FALSE(lesson.comparisons.empty());
  for (const Comparison& comparison : lesson.comparisons) {
    SCOPED_TRACE(comparison.title);
    ASSERT_GE(comparison.ways.size(), 2u);
    ASSERT_GT(comparison.good, 0u);
    ASSERT_LT(comparison.good, comparison.ways.size());
    EXPECT_FALSE(comparison.verdict.empty());
    for (const Way& way : comparison.ways) {
      EXPECT_FALSE(way.name.empty());
      EXPECT_FALSE(way.code.empty()) << way.name;
      EXPECT_GT(way.time.median_us, 0) << way.name;
      EXPECT_LE(way.time.min_us, way.time.median_us) << way.name;
    }
  }
  const nlohmann::json json = to_json({lesson}, kCeilings, settings);
  for (const nlohmann::json& comparison : json["lessons"][0]["comparisons"]) {
    std::map<std::string, double> median;
    for (const nlohmann::json& way : comparison["ways"]) median[way["name"]] = way["median_us"];
    EXPECT_EQ(median.size(), comparison["ways"].size()) << "two ways have one name";
    EXPECT_DOUBLE_EQ(comparison["ratio"].get<double>(), median.at(comparison["slow"]) / median.at(comparison["good"]));
  }
}
INSTANTIATE_TEST_SUITE_P(All, EveryLesson, testing::Range(0, 15));

TEST(Lessons, a_lesson_without_memory_says_so) {
  const int64_t held = memory::stats(kCPU).reserved;
  memory::set_limit(kCPU, held + (int64_t{8} << 20));
  const Lesson lesson = run(table()[5], {.device = kCPU, .seconds = 0.002}, kCeilings);
  memory::set_limit(kCPU, 0);
  EXPECT_TRUE(contains(lesson.error, "out of memory")) << lesson.error;
}

TEST(Lessons, what_needs_a_process_of_its_own_is_left_out_without_one) {
  const Lesson lesson = run(table()[0], {.device = kCPU, .seconds = 0.002}, kCeilings);
  EXPECT_EQ(lesson.error, "");
  ASSERT_EQ(lesson.absent.size(), 1u);
  EXPECT_THROW(run_child("unheard of", kCPU), ValueError);
}

TEST(Lessons, a_child_that_cannot_start_is_an_error_of_the_lesson) {
  const Settings nowhere{.device = kCPU, .seconds = 0.002, .child = {"/nowhere/lorry"}};
  EXPECT_TRUE(contains(run(table()[0], nowhere, kCeilings).error, "/nowhere/lorry"));
  const Settings fails{.device = kCPU, .seconds = 0.002, .child = {"/bin/false"}};
  EXPECT_TRUE(contains(run(table()[0], fails, kCeilings).error, "exit status 1"));
}

}  // namespace
}  // namespace lorry::bench::lessons
