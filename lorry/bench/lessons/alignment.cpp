// Lesson 6: sizes that fill the units of the processor, and sizes that do not.

#include <fmt/core.h>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void product_sizes(LessonRun& run) {
  const DType dtype = run.pick(kF32, kBF16);
  const int64_t n = run.pick(512, 4096);
  run.compare("products of odd sizes", fmt::format("square products in {}: sizes near {}", dtype, n));
  for (const int64_t size : {n + 1, n - 1, n, n + 8}) {
    // given: products of odd sizes
    const Tensor a = randn({size, size}).to(dtype);
    const Tensor b = randn({size, size}).to(dtype);
    const Tensor out = empty({size, size}, {.dtype = dtype});

    const auto s = static_cast<double>(size);
    const double flops = 2 * s * s * s;
    Way& way =
        run.way("a square product", fmt::format("{}", size),
                {.bytes = 3.0 * static_cast<double>(a.nbytes()), .flops = flops, .dtype = std::string(name(dtype))},
                [&] { matmul_out(out, a, b); });
    way.figures = {{"operations a second", 1e6 * flops / way.time.median_us, "FLOP/s"}};
  }
  run.conclude(
      {.faster = "The larger product is the faster one: a size that is padded to a multiple of 8 fills the units.",
       .same = "One element more or less makes no difference here, and padding costs next to nothing.",
       .slower = "The padding costs more than it gains here."});
}

void short_rows(LessonRun& run) {
  // The same number of elements each time, but for what is left of the last row.
  const int64_t total = run.pick<int64_t>(1 << 23, 1 << 26);
  run.compare("short rows",
              fmt::format("sums of rows of 17, 15 and 16 f32, {} in all", quantity(static_cast<double>(total), "")));
  for (const int64_t width : {17, 15, 16}) {
    // given: short rows
    const Tensor x = randn({total / width, width});

    run.way("sums of rows", fmt::format("rows of {}", width), {.bytes = static_cast<double>(x.nbytes())},
            [&] { return x.sum({1}); });
  }
  run.conclude({.faster = "16 elements are whole vectors of every width; 17 leave one element that is read by itself.",
                .same = "The odd element costs nothing here.",
                .slower = "Whole vectors gain nothing here."});
}

void unaligned_start(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 13, 1 << 26);
  // given: where a tensor begins
  const Tensor x = zeros({n + 16});
  const Tensor y = ones({n});

  const double bytes = 3.0 * static_cast<double>(y.nbytes());
  run.compare("where a tensor begins", fmt::format("{} f32, added in place", quantity(static_cast<double>(n), "")));
  run.way("from the second element on", {.bytes = bytes}, [&] { x.narrow(0, 1, n).add_(y); });
  run.way("from the first element on", {.bytes = bytes}, [&] { x.narrow(0, 0, n).add_(y); });
  run.conclude({.faster = "A vector that crosses the border of a cache line takes two accesses.",
                .same = "Where the tensor begins does not matter here.",
                .slower = "Where the tensor begins does no harm here."});
}

}  // namespace

void alignment(LessonRun& run) {
  product_sizes(run);
  short_rows(run);
  unaligned_start(run);
}

}  // namespace lorry::bench::lessons
