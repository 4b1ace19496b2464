// What a call costs when there is almost nothing to compute: 64 floats, no gradients.

#include "lorry/cli/bench.h"
#include "lorry/ops/ops.h"

namespace lorry::cli {

std::vector<BenchRow> bench_overhead(const Filter& wanted) {
  const ModeScope no_grad(0, kGradMode);
  const Tensor x = ones({64}), y = ones({64});
  std::vector<BenchRow> rows;
  const auto add = [&](const char* name, auto&& call) {
    if (wanted(name)) rows.push_back({"overhead", name, measure(call)});
  };
  add("empty 64", [&] { keep(empty({64})); });
  add("view 64 as 8x8", [&] { keep(x.view({8, 8})); });
  add("add 64", [&] { keep(x.add(y)); });
  add("add_ 64", [&] { x.add_(y); });
  return rows;
}

}  // namespace lorry::cli
