// Square matrix products in every floating type, and the f32 product through tf32 where the device has it.

#include <fmt/core.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/cli/bench.h"
#include "lorry/ops/ops.h"

namespace lorry::cli {

std::vector<BenchRow> bench_matmul(const Filter& wanted) {
  const NoGrad no_grad;
  const bool gpu = !default_device().is_cpu();
  std::vector<BenchRow> rows;
  struct Kind {
    const char* name;
    DType dtype;
    Precision precision;
  };
  constexpr Kind kKinds[] = {{"f64", kF64, Precision::full}, {"f32", kF32, Precision::full}, {"tf32", kF32, Precision::tf32},
                             {"f16", kF16, Precision::full}, {"bf16", kBF16, Precision::full}};
  const Precision before = matmul_precision();
  const bool tuning = matmul_tuning();
  for (const Kind& kind : kKinds) {
    if (!gpu && (kind.precision == Precision::tf32 || kind.dtype == kF16)) continue;  // no hardware of the CPU's for it
    set_matmul_precision(kind.precision);
    for (int64_t n = 512; n <= (gpu ? 8192 : 1024); n *= 2) {
      const std::string name = fmt::format("matmul {0} x {0} x {0} {1}", n, kind.name);
      if (!wanted(name)) continue;
      const Tensor a = randn({n, n}).to(kind.dtype), b = randn({n, n}).to(kind.dtype), out = empty({n, n}, {.dtype = kind.dtype});
      for (const bool tuned : {false, true}) {
        if (tuned && (!gpu || kind.dtype == kF64)) continue;
        set_matmul_tuning(tuned);
        BenchRow row{.suite = "matmul",
                     .name = tuned ? name + ", tuned" : name,
                     .time = measure([&] { matmul_out(out, a, b); }, {.device = default_device()}),
                     .dtype = kind.name};
        row.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
        rows.push_back(row);
      }
    }
  }
  set_matmul_precision(before);
  set_matmul_tuning(tuning);
  return rows;
}

}  // namespace lorry::cli
