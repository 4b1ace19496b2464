// Tables of recordings that are made by hand.

#include "lorry/profile/table.h"

#include <gtest/gtest.h>

#include "lorry/profile/assembly.h"
#include "lorry/profile/page.h"
#include "tests/profile/made_recording.h"

namespace lorry::profile {
namespace {

using test::kFirstGPU;
using test::kMicro;
using test::RecordingMaker;

const TableRow& row(const Table& table, const std::string& name) {
  const auto at = std::ranges::find(table.rows, name, &TableRow::name);
  if (at == table.rows.end()) throw std::runtime_error("no row " + name + " in:\n" + to_string(table));
  return *at;
}

/// Two replays of a graph of two calls, the first of which has two kernels.
Recording two_replays() {
  RecordingMaker m;
  Recording& r = m.recording();
  r.names.insert(r.names.end(), {"gelu", "sum"}), r.paths.emplace_back("block0.mlp"), r.lines.emplace_back("m.cpp:4");
  r.part_lists.push_back({{.name = 1, .path = 1, .line = 1, .nodes = 2, .bytes = 2000, .flops = 500},
                          {.name = 2, .path = 1, .line = 1, .nodes = 1, .bytes = 4000}});
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t at = 100 * kMicro * i;
    const int32_t replay = m.span(SpanKind::replay, "replay", at, at + 10 * kMicro);
    r.spans.back().parts = 0;
    for (int64_t k = 0; k < 3; ++k) {
      m.kernel(replay, at, at + 10 * kMicro * k, at + 10 * kMicro * k + 5 * kMicro);
      r.device.back().replayed = static_cast<int32_t>(k / 2);
      r.device.back().correlation = static_cast<uint32_t>(i + 1);
    }
  }
  return m.recording();
}

TEST(Table, counts_a_replayed_call_once_however_many_kernels_it_has) {
  const Table table = profile::table(two_replays(), {}, {test::round_ceilings(kFirstGPU)});
  const TableRow &gelu = row(table, "gelu"), &sum = row(table, "sum");
  EXPECT_EQ(gelu.calls, 2);
  EXPECT_EQ(gelu.launches, 4);
  EXPECT_EQ(gelu.device_ns, 20 * kMicro);
  EXPECT_EQ(gelu.bytes, 4000);
  EXPECT_EQ(gelu.flops, 1000);
  EXPECT_EQ(sum.calls, 2);
  EXPECT_EQ(sum.launches, 2);
  EXPECT_EQ(sum.bytes, 8000);
  ASSERT_TRUE(gelu.ratio_to_ceiling && sum.ratio_to_ceiling);
  EXPECT_DOUBLE_EQ(*gelu.ratio_to_ceiling, 0.2) << "4 us of 20 at a byte a nanosecond";
  EXPECT_DOUBLE_EQ(*sum.ratio_to_ceiling, 0.8);
  EXPECT_EQ(table.total.calls, 6) << "two replays, and what they made";
  EXPECT_EQ(table.total.bytes, 12'000);
  EXPECT_EQ(table.total.flops, 1000);
  EXPECT_EQ(table.total.launches, 6);
}

TEST(Table, gives_replayed_calls_to_the_module_and_the_line_of_their_capture) {
  const Recording r = two_replays();
  const Table modules = profile::table(r, {.by = GroupBy::module}, {});
  EXPECT_EQ(row(modules, "block0.mlp").calls, 4);
  EXPECT_EQ(row(modules, "block0.mlp").bytes, 12'000);
  EXPECT_EQ(row(modules, "block0").device_ns, 30 * kMicro);
  EXPECT_EQ(row(profile::table(r, {.by = GroupBy::line}, {}), "m.cpp:4").launches, 6);
}

TEST(Page, shows_the_shares_that_the_diagnosis_has) {
  RecordingMaker m(1000);
  for (int64_t i = 0; i < 100; ++i) m.call(Op::add, 3 * kMicro * i, 3 * kMicro * i + 2 * kMicro, 2000);
  const Diagnosis d = diagnose(m.recording(), test::options());
  ASSERT_LT(d.times.total(), 0.9 * static_cast<double>(d.duration_ns)) << "recording is no time of the program";
  const std::string text = to_string(d), html = page(m.recording(), {.diagnosis = d, .tables = {}, .memory = {}});
  EXPECT_NE(text.find("regime: overhead (98 % of 200 us)"), std::string::npos) << text;
  EXPECT_NE(html.find("Regime: <b>overhead</b>, 98 % of 200 us on round"), std::string::npos) << html;
  for (const std::string& shown : {text, html})
    EXPECT_NE(shown.find("recording took another 99.0 us, which is not counted"), std::string::npos) << shown;
}

TEST(SpanCost, is_what_lies_between_calls_of_a_tight_loop) {
  const auto with_distance = [](int64_t distance, int64_t count) {
    RecordingMaker m;
    for (int64_t i = 0; i < count; ++i) m.call(Op::add, (100 + distance) * i, (100 + distance) * i + 100);
    return span_cost_ns(m.recording());
  };
  EXPECT_DOUBLE_EQ(with_distance(270, 1000), 270);
  EXPECT_DOUBLE_EQ(with_distance(270, 100), 200) << "too few calls to tell";
  EXPECT_DOUBLE_EQ(with_distance(5000, 1000), 200) << "the program does something between its calls";
  EXPECT_DOUBLE_EQ(with_distance(10, 1000), 100) << "recorded without what takes most";
}

}  // namespace
}  // namespace lorry::profile
