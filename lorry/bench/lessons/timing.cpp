// Lesson 8: mistakes in measuring time, beside what the call takes.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "lorry/base/scope.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/diagnose.h"
#include "lorry/profile/session.h"
#include "lorry/profile/table.h"

namespace lorry::bench::lessons {
namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// A way that reads the clock itself: clocked() returns microseconds. The median of `count` calls; the device rests
/// before each.
template <class F>
Way& by_own_clock(LessonRun& run, const char* key, const Work& work, int count, const F& clocked) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) {
    device::synchronize(run.device());
    all.push_back(clocked());
  }
  std::ranges::sort(all);
  const double median = all[all.size() / 2];
  const size_t quarter = all.size() / 4;
  return run.add(key, key, work,
                 {.median_us = median,
                  .min_us = all.front(),
                  .p90_us = all[all.size() * 9 / 10],
                  .spread = (all[all.size() - 1 - quarter] - all[quarter]) / median,
                  .samples = count,
                  .calls_per_sample = 1});
}

void data_inside_the_clock(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 20, 1 << 26);
  // given: making data
  const Tensor ready = randn({n});

  run.compare("making data", fmt::format("twice {} f32: is the data made inside the timed part?",
                                         quantity(static_cast<double>(n), "")));
  const auto bytes = static_cast<double>(ready.nbytes());
  run.way("with making the data", {.bytes = 3 * bytes, .calls = 2}, [&] {
    const Tensor x = randn({n});
    return x.mul(2);
  });
  run.way("the call alone", {.bytes = 2 * bytes, .calls = 1}, [&] { return ready.mul(2); });
  run.conclude({.faster = "The difference is the time of randn.",
                .same = "Making the data takes no time that shows here.",
                .slower = "Making the data takes no time that shows here.",
                .clocks = true});
}

void without_waiting(LessonRun& run) {
  const int64_t n = run.pick(512, 4096);
  const Device device = run.device();
  // given: waiting for the device
  const Tensor x = randn({n, n});
  Tensor y = matmul(x, x);

  const auto size = static_cast<double>(n);
  const Work work{.bytes = 2 * static_cast<double>(x.nbytes()), .flops = 2 * size * size * size};
  run.compare("waiting for the device", fmt::format("a product of {0} x {0} f32: does the clock wait for it?", n));
  by_own_clock(run, "the clock stops when the call returns", work, 15, [&] {
    const auto start = Clock::now();
    y = matmul(x, x);
    return us_since(start);
  });
  by_own_clock(run, "the clock stops when the work is done", work, 15, [&] {
    const auto start = Clock::now();
    y = matmul(x, x);
    device::synchronize(device);
    return us_since(start);
  });
  run.conclude({.faster = "Waiting takes no time that shows here.",
                .same = "On a CPU a call returns when its work is done; on a GPU it would not.",
                .slower = "A call on a GPU returns when the work is enqueued. profile::benchmark waits for it.",
                .clocks = true});
}

void first_call_alone(LessonRun& run) {
  const int64_t n = int64_t{1} << 22;
  // given: the first call
  memory::empty_cache(run.device());
  const Tensor x = ones({n});
  Tensor y;

  const double bytes = 2 * static_cast<double>(x.nbytes());
  run.compare("the first call", "an addition to 16 MiB: one call, or the median of many");
  by_own_clock(run, "one call, the first", {.bytes = bytes}, 1, [&] {
    const auto start = Clock::now();
    y = x.add(1);
    device::synchronize(x.device());
    return us_since(start);
  });
  run.way("the median of many", {.bytes = bytes}, [&] { y = x.add(1); });
  run.conclude({.faster = "The first call also takes memory from the system. Warm up, and take the median.",
                .same = "Everything that the first call needs was there already.",
                .slower = "Everything that the first call needs was there already.",
                .clocks = true});
}

void cached_input(LessonRun& run) {
  const int64_t n = int64_t{1} << 16;
  // given: caches
  const Tensor x = randn({n});
  profile::Rotation inputs([&] { return randn({n}); }, x.nbytes(), run.device());

  run.compare("caches", "a sum of 256 KiB: the same input again, or inputs in turn that exceed the caches");
  const double bytes = static_cast<double>(x.nbytes());
  run.way("the same input again", {.bytes = bytes}, [&] { return x.sum(); });
  run.way("inputs in turn", {.bytes = bytes}, [&] { return inputs.next().sum(); });
  run.conclude({.faster = "The order of the inputs makes it slower here.",
                .same = "The caches make no difference to this call.",
                .slower = "The same input is found in a cache. If the program will find it in memory, measure that.",
                .clocks = true});
}

/// A step whose slow line is easy to guess wrongly, under the profiler.
void what_a_profile_says(LessonRun& run) {
  const int64_t n = run.pick(512, 2048);
  const Tensor x = randn({n, n}), marks = zeros({256});
  if (profile::Session::any_is_recording()) {
    run.absent("What a profile says: these lessons are being profiled themselves.");
    return;
  }
  profile::Session session;
  {
    const Scope products("products");
    for (int i = 0; i < 4; ++i) profile::do_not_optimize(matmul(x, x));
  }
  {
    const Scope marking("marking");
    for (int64_t i = 0; i < marks.size(0); ++i) marks.select(0, i).fill_(1);
  }
  const profile::Recording recording = session.stop();
  const profile::Table table = profile::table(recording, {.by = profile::GroupBy::module, .row_limit = 4});
  for (const profile::TableRow& row : table.rows)
    run.note(fmt::format("profile::Session: '{}' made {} calls, {} on the CPU{}.", row.name, row.calls,
                         duration_text(static_cast<double>(row.cpu_ns) / 1000),
                         row.device_ns > 0
                             ? fmt::format(", {} on the GPU", duration_text(static_cast<double>(row.device_ns) / 1000))
                             : ""));
  const profile::Diagnosis diagnosis = profile::diagnose(recording);
  if (diagnosis.is_complete())
    run.note(fmt::format("profile::diagnose: the regime is {}, {:.0f} % of the time.", name(diagnosis.regime),
                         100 * diagnosis.times[diagnosis.regime] / diagnosis.times.total()));
  for (const profile::Finding& finding : diagnosis.findings)
    run.note(
        fmt::format("profile::diagnose: {}; predicted gain {}.", finding.what, duration_text(finding.gain_ns / 1000)));
}

}  // namespace

void timing(LessonRun& run) {
  data_inside_the_clock(run);
  without_waiting(run);
  first_call_alone(run);
  cached_input(run);
  what_a_profile_says(run);
}

}  // namespace lorry::bench::lessons
