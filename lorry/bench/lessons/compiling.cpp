// Lesson 13: chains of operators compiled as one function.

#include <fmt/core.h>

#include <algorithm>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/compile/compile.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

/// The time of the first call of a function that was compiled anew, and how many calls earn it back.
void first_call_costs(LessonRun& run, double first_us) {
  const Comparison& all = run.last();
  const double gain = all.ways[0].time.median_us - all.ways[1].time.median_us;
  run.because(fmt::format(
      "The first call took {}, because it recorded the function{}.", duration_text(first_us),
      gain > 0 ? fmt::format("; {:.0f} calls earn that back", std::max(1.0, first_us / gain)) : std::string()));
}

template <class F>
double first_call_us(Device device, F&& call) {
  return profile::benchmark(call, profile::first_call(device)).median_us;
}

void pointwise_chain(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 22, 1 << 26);
  // given: a chain of operators
  const Tensor a = randn({n});
  const Tensor b = rand({n});
  const auto chain = [](const Tensor& x, const Tensor& y) { return ((x * 2 + y).abs() * y - x) * 0.5 + y; };
  const auto compiled = compile(chain, {.wait = true});

  const auto bytes = static_cast<double>(a.nbytes());
  const double first = first_call_us(run.device(), [&] { profile::do_not_optimize(compiled(a, b)); });
  run.compare("a chain of operators", fmt::format("7 operators over {} f32", quantity(static_cast<double>(n), "")));
  run.way("operator by operator", {.bytes = 18 * bytes, .calls = 7}, [&] { return chain(a, b); });
  run.way("compiled", {.bytes = 3 * bytes, .calls = 1}, [&] { return compiled(a, b); });
  run.conclude({.faster = "Compiled, the two operands are read once and the result is written once.",
                .same = "The intermediate results cost nothing that can be measured here.",
                .slower = "The compiled function is no gain here."});
  first_call_costs(run, first);
}

void chain_with_rows(LessonRun& run) {
  const int64_t rows = run.pick(4096, 32768), width = 1024;
  // given: a chain with a softmax
  const Tensor scores = randn({rows, width});
  const Tensor bias = randn({width});
  const auto chain = [&](const Tensor& x) { return softmax(x * 0.125 + bias, -1) * 2; };
  const auto compiled = compile(chain, {.wait = true});

  const auto bytes = static_cast<double>(scores.nbytes());
  const double first = first_call_us(run.device(), [&] { profile::do_not_optimize(compiled(scores)); });
  run.compare("a chain with a softmax", fmt::format("scale, bias, softmax, scale over {} x {} f32", rows, width));
  run.way("one by one", {.bytes = 8 * bytes, .calls = 4}, [&] { return chain(scores); });
  run.way("compiled as one", {.bytes = 2 * bytes, .calls = 1}, [&] { return compiled(scores); });
  run.conclude({.faster = "A softmax works row by row, so its neighbours work on the same rows while these are near.",
                .same = "The intermediate results cost nothing that can be measured here.",
                .slower = "The compiled function is no gain here."});
  first_call_costs(run, first);
}

}  // namespace

void compiling(LessonRun& run) {
  pointwise_chain(run);
  chain_with_rows(run);
}

}  // namespace lorry::bench::lessons
