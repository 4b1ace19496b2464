#include "lorry/profile/memory_timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "lorry/lorry.h"
#include "lorry/nn/layers.h"
#include "lorry/profile/session.h"
#include "lorry/profile/svg.h"

namespace lorry {
namespace {

using profile::GroupBy;
using profile::MemoryTimeline;
using profile::Recording;

constexpr int64_t kMega = 1 << 20;
Tensor floats(int64_t bytes) { return empty({bytes / 4}, {.device = kCPU}); }

TEST(MemoryTimeline, the_peak_is_that_of_the_allocator) {
  const Tensor held = floats(3 * kMega).fill_(1);
  memory::reset_peak(kCPU);
  const int64_t before = memory::stats(kCPU).allocated;
  profile::Session session;
  nn::Linear up(512, 1024), down(1024, 512);
  up.to(kCPU), down.to(kCPU);
  const Tensor x = randn({256, 512}, {.device = kCPU});
  down(up(x).gelu()).pow(2).mean().backward();
  const Recording r = session.stop();
  const int64_t peak = memory::stats(kCPU).peak_allocated;
  const MemoryTimeline t = profile::memory_timeline(r, GroupBy::op, "cpu");
  EXPECT_EQ(t.before_bytes, before);
  // The allocator adds up small blocks of a thread before it counts them.
  EXPECT_NEAR(static_cast<double>(t.peak_bytes), static_cast<double>(peak), 0.01 * static_cast<double>(peak));
  EXPECT_GE(t.explained(), 0.99);
  int64_t sum = 0;
  for (const profile::MemoryHolder& x1 : t.holders) sum += x1.bytes;
  EXPECT_EQ(sum, t.peak_bytes) << "every byte at the peak has a holder";
  EXPECT_TRUE(std::ranges::is_sorted(t.holders, std::greater<>(), &profile::MemoryHolder::bytes));
}

TEST(MemoryTimeline, memory_freed_in_the_session_counts_as_held_before_it) {
  Tensor held = floats(8 * kMega);
  profile::Session session;
  held = Tensor();
  const Tensor made = floats(2 * kMega);
  const Recording r = session.stop();
  const MemoryTimeline t = profile::memory_timeline(r, GroupBy::op, "cpu");
  EXPECT_EQ(t.peak_bytes, t.before_bytes);
  EXPECT_EQ(t.end_bytes, t.before_bytes - 6 * kMega);
}

TEST(MemoryTimeline, groups_by_module_and_line) {
  profile::Session session;
  Tensor held;
  {
    const Scope here("first");
    held = floats(4 * kMega);
  }
  const Recording r = session.stop();
  const MemoryTimeline t = profile::memory_timeline(r, GroupBy::module, "cpu");
  const auto first = std::ranges::find(t.holders, std::string("first"), &profile::MemoryHolder::name);
  ASSERT_NE(first, t.holders.end());
  EXPECT_EQ(first->bytes, 4 * kMega);
  EXPECT_EQ(first->blocks, 1);
  EXPECT_THROW(profile::memory_timeline(r, GroupBy::shape), ValueError);
  EXPECT_THROW(profile::memory_timeline(r, GroupBy::op, "no such allocator"), ValueError);
}

TEST(MemoryTimeline, two_runs_are_compared_by_holder) {
  const auto run = [](int64_t bytes) {
    profile::Session session;
    const Tensor x = floats(bytes).fill_(1), y = x.mul(2);
    return profile::memory_timeline(session.stop(), GroupBy::op, "cpu");
  };
  const MemoryTimeline small = run(kMega), large = run(4 * kMega);
  const profile::MemoryDifference d = profile::memory_difference(small, large);
  ASSERT_EQ(d.rows.size(), 2u) << profile::to_string(d);
  for (const auto& row : d.rows) {
    EXPECT_EQ(row.was_bytes, kMega);
    EXPECT_EQ(row.now_bytes, 4 * kMega);
  }
  EXPECT_TRUE(profile::memory_difference(large, large).rows.empty());
}

TEST(MemoryTimeline, a_recording_without_memory_has_an_empty_one) {
  profile::Session session({.memory = false});
  const Tensor x = floats(kMega);
  const Recording r = session.stop();
  const MemoryTimeline t = profile::memory_timeline(r);
  EXPECT_TRUE(t.holders.empty());
  EXPECT_EQ(t.peak_bytes, 0);
  EXPECT_NE(profile::to_svg(t).find("nothing was recorded"), std::string::npos);
}

TEST(MemoryTimeline, many_events_become_few_points_that_keep_the_peak) {
  profile::Session session;
  for (int i = 0; i < 9000; ++i) static_cast<void>(floats(i == 4321 ? 64 * kMega : 4096));
  const Recording r = session.stop();
  const MemoryTimeline t = profile::memory_timeline(r, GroupBy::op, "cpu");
  EXPECT_LE(t.points.size(), 2500u);
  int64_t most = 0;
  for (const MemoryTimeline::Point& p : t.points) most = std::max(most, p.bytes);
  EXPECT_EQ(most, t.peak_bytes);
  const auto json = nlohmann::json::parse(profile::to_json(t));
  EXPECT_EQ(json["peak_bytes"], t.peak_bytes);
  const std::string svg = profile::to_svg(t);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

TEST(Svg, names_of_roofs_that_lie_close_together_share_a_place) {
  const std::string svg = profile::to_svg(profile::Roofline{
      .bytes_per_s = 1e12, .roofs = {{"f64", 6.0e13}, {"bf16", 8.0e14}, {"f32", 5.9e13}, {"f16", 8.1e14}}});
  EXPECT_NE(svg.find(">f16, bf16</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">f64, f32</text>"), std::string::npos) << svg;
}

TEST(Svg, text_is_escaped) {
  EXPECT_EQ(profile::xml_text("a<b> & \"c\"\x01"), "a&lt;b&gt; &amp; &quot;c&quot;");
  const std::string svg = profile::to_svg(profile::Roofline{.title = "<script>",
                                                            .bytes_per_s = 1e9,
                                                            .roofs = {{"f32 & more", 1e10}},
                                                            .dots = {{"add<1>", 0.1, 1e8, 0.5}, {"none", 0, 0, 0.5}}});
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_NE(svg.find("f32 &amp; more"), std::string::npos);
  EXPECT_NE(svg.find("add&lt;1&gt;"), std::string::npos);
  EXPECT_EQ(svg.find(">none<"), std::string::npos) << "work without operations has no place on a roofline";
}

}  // namespace
}  // namespace lorry
