// Lesson 2: the types of elements.

#include <fmt/core.h>

#include <initializer_list>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

Work product_work(int64_t n, DType dtype) {
  const auto size = static_cast<double>(n);
  return {.bytes = 3 * size * size * static_cast<double>(size_of(dtype)),
          .flops = 2 * size * size * size,
          .dtype = std::string(name(dtype))};
}

void add_rate(Way& way) {
  way.figures = {{"operations a second", 1e6 * way.work.flops / way.time.median_us, "FLOP/s"}};
}

void products(LessonRun& run, std::initializer_list<DType> dtypes) {
  const int64_t n = run.pick(768, 8192);
  for (const DType dtype : dtypes) {
    // given: products
    const Tensor a = randn({n, n}).to(dtype);
    const Tensor b = randn({n, n}).to(dtype);
    const Tensor out = empty({n, n}, {.dtype = dtype});

    add_rate(run.way("a product", std::string(name(dtype)), product_work(n, dtype), [&] { matmul_out(out, a, b); }));
  }
}

/// f32 operands that the units for 16 bits read with 10 bits of mantissa.
void tf32_product(LessonRun& run) {
  const int64_t n = run.pick(768, 8192);
  const Tensor a = randn({n, n}), b = randn({n, n}), out = empty({n, n});
  Work work = product_work(n, kF32);
  work.dtype = "tf32";
  const MatmulPrecisionScope precision(Precision::tf32);
  add_rate(run.way("tf32", work, [&] { matmul_out(out, a, b); }));
}

void sums(LessonRun& run, std::initializer_list<DType> dtypes) {
  const int64_t n = run.pick<int64_t>(1 << 24, 1 << 28);
  for (const DType dtype : dtypes) {
    // given: sums
    const Tensor x = ones({n}, {.dtype = dtype});
    const Tensor y = ones({n}, {.dtype = dtype});

    const double bytes = 3.0 * static_cast<double>(x.nbytes());
    Way& way = run.way("an addition in place", std::string(name(dtype)), {.bytes = bytes}, [&] { x.add_(y); });
    way.figures = {{"bytes a second", 1e6 * bytes / way.time.median_us, "B/s"}};
  }
}

}  // namespace

void data_types(LessonRun& run) {
  const int64_t n = run.pick(768, 8192);
  run.compare("products", fmt::format("a product of {0} x {0}: f64 against f32", n));
  products(run, {kF64, kF32});
  run.conclude({.faster = "On this machine f64 costs that much in products.",
                .same = "The penalty of f64 that is often quoted belongs to another processor.",
                .slower =
                    "The penalty of f64 that is often quoted belongs to another processor: here the units for f64 "
                    "products are faster than those for f32 in full precision."});

  run.compare("products", fmt::format("a product of {0} x {0}: f32 against types of 16 bits", n));
  products(run, {kF32});
  if (run.on_gpu()) tf32_product(run);
  products(run, {kF16, kBF16});
  run.conclude({.faster = "This processor has units for products of 16 bits.",
                .same = "This processor has no faster units for products of 16 bits.",
                .slower = "This processor has no units for products of 16 bits: the elements are converted first."});

  run.compare("sums", "elements added in place: the fewer bytes, the sooner they are moved");
  sums(run, {kF64, kF32, kBF16, kI8});
  run.conclude({.faster = "An addition is bound by memory, so its time follows the bytes of an element.",
                .same = "Here something else than bytes decides.",
                .slower = "Here the conversion of small elements costs more than their bytes save."});
}

}  // namespace lorry::bench::lessons
