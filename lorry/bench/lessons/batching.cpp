// Lesson 4: many small operations in one call.

#include <fmt/core.h>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void small_products(LessonRun& run) {
  const int64_t count = 256, n = 16;
  // given: small products
  const Tensor a = randn({count, n, n});
  const Tensor b = randn({count, n, n});
  const Tensor out = empty({count, n, n});

  const auto products = static_cast<double>(count), size = static_cast<double>(n);
  const Work work{.bytes = 3.0 * static_cast<double>(a.nbytes()), .flops = 2 * products * size * size * size};
  Work looped = work;
  looped.calls = products;
  run.compare("small products", fmt::format("{} products of {} x {} f32", count, n, n));
  run.way("one after the other", looped, [&] {
    for (int64_t i = 0; i < count; ++i) matmul_out(out[i], a[i], b[i]);
  });
  run.way("as one batch", work, [&] { matmul_out(out, a, b); });
  run.conclude({.faster = "The loop pays for a call with each small product.",
                .same = "The calls are hidden by the products at this size.",
                .slower = "The batch is no gain at this size."});
}

void rows_of_a_product(LessonRun& run) {
  const int64_t rows = 64, width = run.pick<int64_t>(1024, 4096);
  // given: rows of a product
  const Tensor weight = randn({width, width});
  const Tensor x = randn({rows, width});
  const Tensor y = empty({rows, width});

  const auto w = static_cast<double>(width), r = static_cast<double>(rows);
  const double flops = 2 * r * w * w, weight_bytes = static_cast<double>(weight.nbytes());
  run.compare("rows of a product", fmt::format("{} rows times a matrix of {} x {}, f32", rows, width, width));
  run.way("a row at a time", {.bytes = r * weight_bytes, .flops = flops, .calls = r}, [&] {
    for (int64_t i = 0; i < rows; ++i) matmul_out(y.narrow(0, i, 1), x.narrow(0, i, 1), weight);
  });
  run.way("all rows in one product", {.bytes = weight_bytes, .flops = flops}, [&] { matmul_out(y, x, weight); });
  run.conclude({.faster =
                    "A row at a time reads the whole matrix again for each row; all rows together read it once and "
                    "turn a question of memory into one of arithmetic.",
                .same = "The matrix stays near enough to the units here.",
                .slower = "Reading the matrix again costs nothing here."});
}

}  // namespace

void batching(LessonRun& run) {
  small_products(run);
  rows_of_a_product(run);
}

}  // namespace lorry::bench::lessons
