// diagnose() of recordings that are made by hand: regimes, phases and waits.

#include "lorry/profile/diagnose.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/profile/program_view.h"
#include "tests/profile/made_recording.h"

namespace lorry::profile {
namespace {

using test::find;
using test::kFirstGPU;
using test::kKernelGap;
using test::kMicro;
using test::options;
using Maker = test::RecordingMaker;

const Phase& phase(const Diagnosis& d, const std::string& name) {
  const auto at = std::ranges::find(d.phases, name, &Phase::name);
  if (at == d.phases.end()) throw std::runtime_error("no phase " + name + " in:\n" + to_string(d));
  return *at;
}

// ---- intervals ------------------------------------------------------------------------------------------------------

TEST(Intervals, are_joined_where_they_meet) {
  const Intervals x({{50, 60}, {10, 20}, {20, 30}, {15, 18}, {40, 40}, {55, 70}});
  ASSERT_EQ(x.list().size(), 2u);
  EXPECT_EQ(x.list()[0].begin, 10);
  EXPECT_EQ(x.list()[0].end, 30);
  EXPECT_EQ(x.list()[1].begin, 50);
  EXPECT_EQ(x.list()[1].end, 70);
  EXPECT_EQ(x.length(), 40);
}

TEST(Intervals, what_they_cover_and_what_they_leave_is_the_whole) {
  const Intervals x({{10, 30}, {50, 70}, {90, 95}});
  EXPECT_EQ(x.within({0, 100}), 45);
  EXPECT_EQ(x.within({20, 60}), 20);
  EXPECT_EQ(x.within({30, 50}), 0);
  EXPECT_EQ(x.within({55, 56}), 1);
  for (int64_t begin = 0; begin < 100; ++begin)
    for (int64_t end = begin; end <= 100; ++end) {
      int64_t left = 0, last = begin;
      for (const Interval& gap : x.gaps({begin, end})) {
        EXPECT_LE(last, gap.begin);
        EXPECT_LT(gap.begin, gap.end);
        left += gap.length(), last = gap.end;
      }
      EXPECT_LE(last, end);
      ASSERT_EQ(left + x.within({begin, end}), end - begin) << begin << " to " << end;
    }
  EXPECT_TRUE(Intervals().gaps({5, 5}).empty());
  EXPECT_EQ(Intervals().gaps({5, 9})[0].length(), 4);
}

// ---- waits ----------------------------------------------------------------------------------------------------------

/// A kernel until `drained`, a wait, and a kernel that begins at `next`; 0: none. In microseconds.
WaitReport report_of(int64_t drained, Interval wait, int64_t next) {
  Maker m;
  const int32_t first = m.call(Op::add, 0, 10 * kMicro);
  m.kernel(first, 5 * kMicro, 10 * kMicro, drained * kMicro);
  m.wait(wait.begin * kMicro, wait.end * kMicro);
  if (next > 0) {
    const int32_t second = m.call(Op::add, std::max(wait.end, next - 10) * kMicro, next * kMicro);
    m.kernel(second, std::max(wait.end, next - 5) * kMicro, next * kMicro, (next + 100) * kMicro);
  }
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.waits.size(), 1u);
  return d.waits.at(0);
}

TEST(Waits, for_a_drained_queue_leave_the_gpu_idle_until_the_next_work) {
  // The host waits 900 for the kernel, then needs 200 to enqueue the next. Without the wait that is long enqueued.
  const WaitReport x = report_of(1000, {100, 1000}, 1200);
  EXPECT_EQ(x.waited_ns, 900 * kMicro);
  EXPECT_EQ(x.idle_caused_ns, 200 * kMicro - kKernelGap);
  EXPECT_FALSE(x.is_needed);
}

TEST(Waits, cause_only_what_is_idle_beyond_the_gap_of_the_host) {
  // The kernel ends at 100, the host waits from 300 to 350: a late answer. The next work begins at 500. Without the
  // wait it begins at 450.
  EXPECT_EQ(report_of(100, {300, 350}, 500).idle_caused_ns, 50 * kMicro);
}

TEST(Waits, longer_than_the_gap_of_the_host_cause_the_whole_gap) {
  // Without the wait of 800 the next work is enqueued at 1100 - 800 = 300, before the kernel ends at 900.
  EXPECT_EQ(report_of(900, {150, 950}, 1100).idle_caused_ns, 200 * kMicro - kKernelGap);
  // It is enqueued at 950, 50 after the kernel's end.
  EXPECT_EQ(report_of(900, {850, 1000}, 1100).idle_caused_ns, 150 * kMicro);
}

TEST(Waits, while_queued_work_goes_on_cause_nothing) {
  // An event in the middle of the queue was waited for; the kernel goes on until 2000.
  const WaitReport x = report_of(2000, {100, 1000}, 2000);
  EXPECT_EQ(x.idle_caused_ns, 0);
  EXPECT_TRUE(x.is_needed);
}

TEST(Waits, at_the_end_cause_nothing) {
  const WaitReport x = report_of(1000, {100, 1000}, 0);
  EXPECT_EQ(x.idle_caused_ns, 0);
  EXPECT_TRUE(x.is_needed);
}

TEST(Waits, are_needed_if_the_work_before_them_takes_the_time) {
  EXPECT_TRUE(report_of(100'000, {100, 100'000}, 100'500).is_needed);
  EXPECT_FALSE(report_of(100'000, {100, 100'000}, 150'000).is_needed);
}

/// After a wait the host needs several launches until it is ahead of the GPU again; the gaps between these are the
/// wait's too. Kernels of 12 us, and a launch every 10 us.
TEST(Waits, cause_what_is_idle_until_the_host_is_ahead_again) {
  Maker m;
  const int32_t span = m.call(Op::add, 0, 10 * kMicro);
  m.kernel(span, 0, 5 * kMicro, 1000 * kMicro);
  m.wait(100 * kMicro, 1000 * kMicro);
  int64_t done = 1000 * kMicro;
  for (int64_t i = 0; i < 20; ++i) {
    const int64_t launched = (1010 + 10 * i) * kMicro, begin = std::max(launched + 5 * kMicro, done + kKernelGap);
    m.kernel(m.call(Op::add, launched, launched + kMicro), launched, begin, begin + 12 * kMicro);
    done = begin + 12 * kMicro;
  }
  // Without the wait the kernels follow each other at once.
  const int64_t without = 1000 * kMicro + 20 * (kKernelGap + 12 * kMicro);
  EXPECT_EQ(diagnose(m.recording(), options()).waits.at(0).idle_caused_ns, done - without);
}

/// Each of the waits lasts 20 us in which the GPU has nothing to do. The host takes all the time, so without them the
/// program is shorter by all of them. Beside it a thread without waits may enqueue work too.
TEST(Waits, of_a_program_that_the_host_holds_up_cause_what_they_take) {
  for (const bool has_others : {false, true}) {
    SCOPED_TRACE(has_others);
    Maker m;
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t at = 100 * i * kMicro;
      m.kernel(m.call(Op::add, at, at + 10 * kMicro), at, at + 5 * kMicro, at + 15 * kMicro);
      m.wait(at + 40 * kMicro, at + 60 * kMicro);
      if (!has_others) continue;
      // Of various latencies: it was early by more or less.
      const int64_t begin = at + (66 + i) * kMicro;
      m.device_work(DeviceWork::kernel, CopyKind::none, kNone, at + 61 * kMicro, begin, begin + 3 * kMicro);
      m.recording().calls.back().thread = kNone;
    }
    EXPECT_EQ(diagnose(m.recording(), options()).waits.at(0).idle_caused_ns, 9 * 20 * kMicro);
  }
}

TEST(Waits, in_a_row_could_be_one) {
  Maker m;
  const int32_t first = m.call(Op::add, 0, 10 * kMicro);
  m.kernel(first, 5 * kMicro, 10 * kMicro, 100 * kMicro);
  // Each read copies its value to the host, which is no work that the next could wait for.
  const auto read = [&](int64_t at) {
    m.device_work(DeviceWork::copy, CopyKind::to_host, kNone, at * kMicro, (at + 5) * kMicro, (at + 6) * kMicro);
    m.wait(at * kMicro, (at + 20) * kMicro);
  };
  for (int64_t i = 0; i < 4; ++i) read(110 + 100 * i);
  const int32_t second = m.call(Op::add, 5000 * kMicro, 5010 * kMicro);
  m.kernel(second, 5005 * kMicro, 5010 * kMicro, 5020 * kMicro);
  read(5030);
  const Diagnosis d = diagnose(m.recording(), options(0));
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].count, 5);
  EXPECT_EQ(d.waits[0].could_join, 3) << "the second to the fourth; before the fifth a kernel was launched";
  const Finding* found = find(d, Finding::Kind::waits);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->count, 3);
  // One call more, which brings the values together, takes the host 10, and a GPU 2 at least.
  EXPECT_DOUBLE_EQ(found->gain_ns, (3 * 20 - 10 - 2) * kMicro);
}

// ---- regimes --------------------------------------------------------------------------------------------------------

TEST(Regimes, of_kernels_follow_the_closer_ceiling) {
  Maker m;
  const int32_t copy = m.call(Op::add, 0, 10, 100 * kMicro);
  const int32_t product = m.call(Op::matmul, 20, 30, 1 * kMicro, 300 * kMicro);
  m.kernel(copy, 5, 0, 125 * kMicro);                 // at 80 % of the copy's rate
  m.kernel(product, 25, 125 * kMicro, 500 * kMicro);  // at 80 % of the product's
  const Diagnosis d = diagnose(m.recording(), options());
  ASSERT_TRUE(d.is_complete());
  EXPECT_EQ(d.device, kFirstGPU);
  EXPECT_EQ(d.busy_ns, 500 * kMicro);
  EXPECT_EQ(d.regime, Regime::compute);
  EXPECT_DOUBLE_EQ(d.times[Regime::memory], 125 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::compute], 375 * kMicro);
  EXPECT_DOUBLE_EQ(d.times.total(), static_cast<double>(d.duration_ns));
}

TEST(Regimes, an_idle_gpu_means_overhead_while_the_host_is_busy_and_waiting_while_it_sleeps) {
  Maker m;
  const int32_t first = m.call(Op::add, 0, 10, 100 * kMicro);
  m.kernel(first, 5, 0, 100 * kMicro);
  m.gap(100 * kMicro, 400 * kMicro, 250 * kMicro);
  const int32_t second = m.call(Op::add, 400 * kMicro, 400 * kMicro + 10, 100 * kMicro);
  m.kernel(second, 400 * kMicro + 5, 400 * kMicro, 500 * kMicro);
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.regime, Regime::waiting);
  EXPECT_DOUBLE_EQ(d.times[Regime::waiting], 250 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::overhead], 50 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::memory], 200 * kMicro);
}

TEST(Regimes, what_recording_takes_is_no_overhead_of_the_program) {
  Maker m(200);
  m.recording().costs.launch_ns = 2000;
  for (int64_t i = 0; i < 10; ++i) {
    const int32_t call = m.call(Op::add, 10 * kMicro * i, 10 * kMicro * i + 9 * kMicro, 100);
    m.kernel(call, 10 * kMicro * i + 5 * kMicro, 10 * kMicro * i + 9 * kMicro, 10 * kMicro * (i + 1));
  }
  const Diagnosis d = diagnose(m.recording(), options());
  // Of each 10 us the GPU is idle for 9, of which 2.2 go to recording a call and its launch.
  EXPECT_NEAR(d.times[Regime::overhead] + d.times[Regime::memory], 10 * (10 - 2.2) * kMicro, 1);
}

TEST(Regimes, copies_across_the_link_are_waiting) {
  Maker m;
  const int32_t copy = m.call(Op::transfer, 0, 10, 10 * kMicro);
  m.device_work(DeviceWork::copy, CopyKind::to_device, copy, 5, 0, 300 * kMicro);
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.regime, Regime::waiting);
  EXPECT_DOUBLE_EQ(d.times[Regime::waiting], 300 * kMicro);
}

TEST(Regimes, on_the_cpu_calls_and_the_time_between_them_make_up_the_duration) {
  Maker m;
  m.call(Op::add, 0, 100 * kMicro, 90 * kMicro);
  m.call(Op::matmul, 100 * kMicro, 300 * kMicro, 10 * kMicro, 190 * kMicro);
  m.gap(300 * kMicro, 350 * kMicro, 40 * kMicro);
  m.call(Op::add, 350 * kMicro, 400 * kMicro, 45 * kMicro);
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.device, kCPU);
  EXPECT_EQ(d.regime, Regime::compute);
  EXPECT_DOUBLE_EQ(d.times[Regime::memory], 150 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::compute], 200 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::waiting], 40 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::overhead], 10 * kMicro);
  EXPECT_DOUBLE_EQ(d.times.total(), static_cast<double>(d.duration_ns));
  EXPECT_EQ(d.busy_ns, 350 * kMicro);
}

TEST(Regimes, tiny_calls_are_overhead) {
  Maker m;
  for (int64_t i = 0; i < 100; ++i) m.call(Op::add, 1000 * i, 1000 * i + 180, 12);
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.regime, Regime::overhead);
  EXPECT_GT(d.times[Regime::overhead], 0.95 * static_cast<double>(d.duration_ns));
}

TEST(Regimes, count_what_a_replay_holds_once) {
  Maker m;
  const int32_t replay = m.span(SpanKind::replay, "graph", 0, 1000 * kMicro);
  for (int64_t i = 0; i < 9; ++i) {
    const int32_t call = m.call(Op::add, i * 100 * kMicro, (i + 1) * 100 * kMicro, 90 * kMicro, 0, replay);
    m.recording().spans[static_cast<size_t>(call)].kind = SpanKind::replayed;
  }
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_DOUBLE_EQ(d.times.total(), 1000 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::memory], 900 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::overhead], 100 * kMicro) << "the rest of the replay";
  EXPECT_EQ(d.busy_ns, 1000 * kMicro);
}

TEST(Regimes, on_a_gpu_replayed_calls_are_judged_by_what_was_captured) {
  Maker m;
  Recording& r = m.recording();
  r.part_lists.push_back({{.bytes = 1 * kMicro, .flops = 300 * kMicro}, {.bytes = 100 * kMicro}});
  const int32_t replay = m.span(SpanKind::replay, "replay", 0, 10);
  r.spans.back().parts = 0;
  for (int32_t k = 0; k < 2; ++k) {
    m.kernel(replay, 5, k * 375 * kMicro, k == 0 ? 375 * kMicro : 500 * kMicro);
    r.device.back().replayed = k, r.device.back().correlation = 1;
  }
  const Diagnosis d = diagnose(r, options());
  EXPECT_EQ(d.regime, Regime::compute) << to_string(d);
  EXPECT_DOUBLE_EQ(d.times[Regime::compute], 375 * kMicro);
  EXPECT_DOUBLE_EQ(d.times[Regime::memory], 125 * kMicro);
}

TEST(Regimes, a_call_that_lost_its_processor_did_not_compute) {
  Maker m;
  for (int64_t i = 0; i < 20; ++i) m.operands(m.call(Op::add, 200 * i, 200 * i + 150, 768), {{1, {64}}, {2, {64}}});
  m.operands(m.call(Op::add, 4000, 4000 + 4000 * kMicro, 768), {{1, {64}}, {2, {64}}});
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.regime, Regime::overhead) << to_string(d);
  EXPECT_DOUBLE_EQ(d.times.total(), static_cast<double>(d.duration_ns));
}

TEST(Regimes, a_step_of_an_optimizer_far_above_its_ceiling_is_overhead) {
  Maker m;
  m.call(Op::optimizer_step, 0, 1000 * kMicro, 2000 * kMicro);
  EXPECT_EQ(diagnose(m.recording(), options()).regime, Regime::memory);
  m.recording().spans[0].bytes = 2 << 20;
  m.recording().spans[0].end = m.recording().duration = 20'000 * kMicro;
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(d.regime, Regime::overhead);
  EXPECT_DOUBLE_EQ(d.times[Regime::memory], 2.0 * (2 << 20));
}

// ---- phases ---------------------------------------------------------------------------------------------------------

TEST(Phases, are_ranges_of_the_user_or_forward_backward_and_optimizer) {
  Maker m;
  const int32_t range = m.span(SpanKind::scope, "load", 0, 100 * kMicro);
  m.call(Op::add, 0, 100 * kMicro, 90 * kMicro, 0, range);
  const int32_t module = m.span(SpanKind::scope, "layer", 100 * kMicro, 300 * kMicro);
  m.recording().spans.back().is_module = true;
  m.call(Op::matmul, 100 * kMicro, 300 * kMicro, 0, 150 * kMicro, module);
  const int32_t node = m.span(SpanKind::backward, "matmul", 300 * kMicro, 700 * kMicro);
  m.call(Op::matmul, 300 * kMicro, 700 * kMicro, 0, 300 * kMicro, node);
  m.call(Op::optimizer_step, 700 * kMicro, 750 * kMicro, 45 * kMicro);
  m.call(Op::add, 750 * kMicro, 760 * kMicro, 9 * kMicro);
  const Diagnosis d = diagnose(m.recording(), options());
  ASSERT_EQ(d.phases.size(), 5u) << to_string(d);
  EXPECT_EQ(d.phases[0].name, "backward") << "the longest is the first";
  EXPECT_EQ(phase(d, "load").host_ns, 100 * kMicro);
  EXPECT_EQ(phase(d, "load").times.largest(), Regime::memory);
  EXPECT_EQ(phase(d, "forward").host_ns, 200 * kMicro);
  EXPECT_EQ(phase(d, "forward").times.largest(), Regime::compute);
  EXPECT_EQ(phase(d, "backward").host_ns, 400 * kMicro);
  EXPECT_EQ(phase(d, "optimizer").host_ns, 50 * kMicro);
  EXPECT_EQ(phase(d, "other calls").host_ns, 10 * kMicro);
  const auto json = nlohmann::json::parse(to_json(d));
  EXPECT_EQ(json["regime"], "compute");
  EXPECT_EQ(json["phases"].size(), 5u);
}

TEST(Phases, of_kernels_are_those_of_the_calls_that_launched_them) {
  Maker m;
  const int32_t range = m.span(SpanKind::scope, "load", 0, 20);
  const int32_t inside = m.call(Op::add, 0, 10, 100 * kMicro, 0, range);
  const int32_t outside = m.call(Op::add, 30, 40, 100 * kMicro);
  m.kernel(inside, 5, 0, 100 * kMicro);
  m.kernel(outside, 35, 100 * kMicro, 300 * kMicro);
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(phase(d, "load").device_ns, 100 * kMicro);
  EXPECT_EQ(phase(d, "load").host_ns, 20);
  EXPECT_EQ(phase(d, "other calls").device_ns, 200 * kMicro);
}

// ---- recordings without a verdict -----------------------------------------------------------------------------------

TEST(Diagnosis, of_an_incomplete_recording_gives_no_verdict) {
  Maker m;
  m.call(Op::add, 0, 100 * kMicro, 90 * kMicro);
  m.recording().incomplete.push_back("7 calls were lost");
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_FALSE(d.is_complete());
  EXPECT_TRUE(d.phases.empty());
  EXPECT_TRUE(d.findings.empty());
  EXPECT_EQ(d.times.total(), 0);
  EXPECT_NE(to_string(d).find("7 calls were lost"), std::string::npos);
  EXPECT_EQ(to_string(d).find("regime"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(to_json(d)).contains("regime"));
}

TEST(Diagnosis, of_gpus_that_could_not_be_recorded_gives_no_verdict) {
  Maker m;
  m.call(Op::add, 0, 100 * kMicro, 90 * kMicro);
  m.recording().no_gpu = "CUPTI is not installed";
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_FALSE(d.is_complete());
  EXPECT_NE(to_string(d).find("CUPTI is not installed"), std::string::npos);
}

TEST(Diagnosis, of_nothing_is_empty) {
  Maker m;
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_TRUE(d.is_complete());
  EXPECT_EQ(d.times.total(), 0);
  EXPECT_TRUE(d.findings.empty());
  EXPECT_FALSE(to_string(d).empty());
}

}  // namespace
}  // namespace lorry::profile
