// Lesson 7: the order of elements in memory.

#include <fmt/core.h>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void sum_of_a_transposed_matrix(LessonRun& run) {
  const int64_t n = run.pick(4096, 16384);
  // given: the sum of a transposed matrix
  const Tensor x = randn({n, n}).t();

  const auto bytes = static_cast<double>(x.nbytes());
  run.compare("the sum of a transposed matrix",
              fmt::format("row sums of a transposed matrix, {0} x {0} f32: is it better copied first?", n));
  run.way("copied first", {.bytes = 3 * bytes, .calls = 2}, [&] { return x.contiguous().sum({1}); });
  run.way("summed as it lies", {.bytes = bytes}, [&] { return x.sum({1}); });
  run.conclude({.faster = "The advice to make a tensor contiguous first is wrong here: the copy reads and writes every "
                          "element before the sum reads it again.",
                .same = "The copy is hidden by other costs here, but it gains nothing.",
                .slower = "Here the copy pays, as the popular advice has it."});
}

void rows_and_columns(LessonRun& run) {
  const int64_t n = run.pick(4096, 16384);
  // given: rows and columns
  const Tensor x = randn({n, n});
  const Tensor out = empty({64, n});

  const double bytes = 2.0 * static_cast<double>(out.nbytes());
  run.compare("rows and columns", fmt::format("64 columns or 64 rows of a matrix, {0} x {0} f32, copied", n));
  run.way("columns", {.bytes = bytes}, [&] { out.copy_(x.narrow(1, 0, 64).t()); });
  run.way("rows", {.bytes = bytes}, [&] { out.copy_(x.narrow(0, 0, 64)); });
  run.conclude(
      {.faster = "Neighbours in a column lie a whole row apart, so each cache line and page serves few of them.",
       .same = "The memory system hides the stride here.",
       .slower = "The stride does no harm here."});
}

void gather(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 23, 1 << 27);
  // given: gathering by index
  const Tensor x = randn({n});
  const Tensor in_order = arange(n);
  const Tensor shuffled = randperm(n);

  const double bytes = 2.0 * static_cast<double>(x.nbytes()) + static_cast<double>(in_order.nbytes());
  run.compare("gathering by index", fmt::format("{} f32 gathered by index", quantity(static_cast<double>(n), "")));
  run.way("in random order", {.bytes = bytes}, [&] { return x.index_select(0, shuffled); });
  run.way("in order", {.bytes = bytes}, [&] { return x.index_select(0, in_order); });
  run.conclude({.faster = "The bytes asked for are the same; in random order each of them brings a whole cache line. "
                          "Sort indices where the order is free.",
                .same = "The order of the indices makes no difference at this size.",
                .slower = "The order of the indices does no harm here."});
}

}  // namespace

void memory_layout(LessonRun& run) {
  sum_of_a_transposed_matrix(run);
  rows_and_columns(run);
  gather(run);
}

}  // namespace lorry::bench::lessons
