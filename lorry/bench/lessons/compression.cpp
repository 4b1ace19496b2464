// Lesson 14: fewer bits an element, and what is lost.

#include <fmt/core.h>

#include <string>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

/// Elements that a type cannot hold, and the largest error of those that it can, relative to the element.
double largest_error(const Tensor& x, DType dtype) {
  const Tensor back = x.to(dtype).to(kF32);
  return ((back - x).abs() / x.abs()).max().item<double>();
}

void rates(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 24, 1 << 28);
  run.compare("kept in fewer bits", fmt::format("{} numbers, scaled in place", quantity(static_cast<double>(n), "")));
  for (const DType dtype : {kF32, kF16, kBF16}) {
    // given: kept in fewer bits
    const Tensor exact = randn({n});
    const Tensor x = exact.to(dtype);

    const double bytes = 2.0 * static_cast<double>(x.nbytes());
    Way& way = run.way("scaled in place", std::string(name(dtype)), {.bytes = bytes}, [&] { x.mul_(1); });
    way.figures = {{"memory", static_cast<double>(x.nbytes()), "B"},
                   {"largest relative error", largest_error(exact, dtype)}};
  }
  run.conclude({.faster = "Half the bytes are moved in less time.",
                .same = "Converting the elements takes what the bytes save.",
                .slower = "Converting the elements takes more than the bytes save."});
}

void casts(LessonRun& run) {
  const int64_t n = run.pick(768, 4096);
  // given: cast for each use
  const Tensor a = randn({n, n});
  const Tensor b = randn({n, n}).to(kBF16);
  const Tensor kept = a.to(kBF16);

  const auto size = static_cast<double>(n);
  const Work work{.bytes = 3.0 * static_cast<double>(b.nbytes()), .flops = 2 * size * size * size, .dtype = "bf16"};
  Work casting = work;
  casting.bytes += static_cast<double>(a.nbytes() + b.nbytes());
  casting.calls = 2;
  run.compare("cast for each use", fmt::format("a weight of {0} x {0}, used in bf16", n));
  run.way("cast for each product", casting, [&] { return matmul(a.to(kBF16), b); });
  run.way("cast once and kept", work, [&] { return matmul(kept, b); });
  run.conclude({.faster = "The cast reads and writes the whole weight each time.",
                .same = "The cast is hidden by the product at this size.",
                .slower = "Casting each time does no harm here."});
}

/// What becomes of numbers beyond a type's range.
void ranges(LessonRun& run) {
  for (const DType dtype : {kF16, kBF16})
    for (const double value : {70000.0, 1e-8, 1.001}) {
      const double stored = full({1}, value, {.dtype = kF64}).to(dtype).to(kF64).item<double>();
      run.note(fmt::format("{:g} in {} becomes {:g}.", value, dtype, stored));
    }
}

}  // namespace

void compression(LessonRun& run) {
  rates(run);
  casts(run);
  ranges(run);
  // Here: rows for 8 bits, once the room `ops` has quantize and dequantize.
}

}  // namespace lorry::bench::lessons
