// Lesson 9: what a call costs, and how often it is paid.

#include <fmt/core.h>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void element_by_element(LessonRun& run) {
  const int64_t n = run.pick(4096, 512);
  // given: one added to each element
  const Tensor x = zeros({n});

  const double bytes = 2.0 * static_cast<double>(x.nbytes());
  run.compare("one added to each element", fmt::format("1 added to {} f32", n));
  run.way("an operator for each element", {.bytes = bytes, .calls = static_cast<double>(n)}, [&] {
    for (int64_t i = 0; i < n; ++i) x[i] += 1;
  });
  if (!run.on_gpu())
    run.way("the host's pointer", {.bytes = bytes, .calls = 0}, [&] {
      float* elements = x.data<float>();
      for (int64_t i = 0; i < n; ++i) elements[i] += 1;
      profile::do_not_optimize(elements[0]);
    });
  run.way("one operator for all", {.bytes = bytes}, [&] { x.add_(1); });
  run.conclude(
      {.faster = "The addition of an element takes a fraction of a nanosecond, the call around it much longer.",
       .same = "The loop costs nothing here.",
       .slower = "The loop is the faster way here."});
}

void read_one_by_one(LessonRun& run) {
  const int64_t n = run.pick(4096, 512);
  // given: reading elements
  const Tensor x = ones({n});
  double total = 0;

  const auto bytes = static_cast<double>(x.nbytes());
  run.compare("reading elements", fmt::format("the sum of {} f32 as a number of the host", n));
  run.way("item() of each element", {.bytes = bytes, .calls = static_cast<double>(n)}, [&] {
    total = 0;
    for (int64_t i = 0; i < n; ++i) total += x[i].item<double>();
    profile::do_not_optimize(total);
  });
  run.way("item() of the sum", {.bytes = bytes, .calls = 2}, [&] { total = x.sum().item<double>(); });
  run.conclude({.faster = "Each item() is a view, a read, and on a GPU a wait.",
                .same = "Reading elements one by one costs nothing here.",
                .slower = "Reading elements one by one is the faster way here."});
}

void small_calls(LessonRun& run) {
  const int64_t pieces = 1024, piece = 1024;
  // given: small calls
  const Tensor x = zeros({pieces, piece});

  const double bytes = 2.0 * static_cast<double>(x.nbytes());
  run.compare("small calls", fmt::format("{} elements in {} calls or in one", quantity(pieces * piece, ""), pieces));
  run.way("a call for each row", {.bytes = bytes, .calls = static_cast<double>(pieces)}, [&] {
    for (int64_t i = 0; i < pieces; ++i) x.select(0, i).add_(1);
  });
  run.way("one call", {.bytes = bytes}, [&] { x.add_(1); });
  run.conclude({.faster = "A row is too small to hide the call around it.",
                .same = "A row of 1024 elements is enough to hide the call around it.",
                .slower = "The rows are found in a cache, so small calls do no harm here."});
}

}  // namespace

void call_overhead(LessonRun& run) {
  element_by_element(run);
  read_one_by_one(run);
  small_calls(run);
  run.note(fmt::format("The smallest call, one element in place, takes {} on this device.",
                       duration_text(run.ceilings().call_us)));
}

}  // namespace lorry::bench::lessons
