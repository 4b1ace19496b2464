// Lesson 5: operators in place.

#include <fmt/core.h>

#include <cmath>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void large_sum(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 24, 1 << 28);
  // given: a large addition
  Tensor x = zeros({n});
  const Tensor y = ones({n});

  const double bytes = 3.0 * static_cast<double>(y.nbytes());
  run.compare("a large addition", fmt::format("{} f32 added", quantity(static_cast<double>(n), "")), {.memory = true});
  run.way("a new tensor", {.bytes = bytes}, [&] { x = x.add(y); });
  run.way("in place", {.bytes = bytes}, [&] { x.add_(y); });
  run.conclude({.faster =
                    "Both read two arrays and write one. In place, the written lines are in the cache already, and "
                    "no further memory is needed.",
                .same = "Both read two arrays and write one: the gain of working in place is memory, not time.",
                .slower = "Working in place saves memory, not time."});
}

void small_sum(LessonRun& run) {
  // given: a small addition
  Tensor x = zeros({64});
  const Tensor y = ones({64});

  const double bytes = 3.0 * static_cast<double>(y.nbytes());
  run.compare("a small addition", "64 f32 added: when it hardly matters");
  run.way("a small new tensor", {.bytes = bytes, .calls = 1}, [&] { x = x.add(y); });
  run.way("a small one in place", {.bytes = bytes, .calls = 1}, [&] { x.add_(y); });
  run.conclude({.faster = "What is saved is taking a small block from the cache of the allocator and giving one back.",
                .same = "The block for the result comes from the cache of the allocator and costs next to nothing.",
                .slower = "Working in place gains nothing at this size."});
  const Comparison& all = run.last();
  run.because(fmt::format("The difference is {} a call.",
                          duration_text(std::abs(all.ways[0].time.median_us - all.ways[1].time.median_us))));
}

}  // namespace

void in_place(LessonRun& run) {
  large_sum(run);
  small_sum(run);
}

}  // namespace lorry::bench::lessons
