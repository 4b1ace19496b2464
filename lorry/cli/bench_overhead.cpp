// What a call costs when there is almost nothing to do. bench/peers/overhead_torch.{cpp,py} make the same calls in
// PyTorch.

#include "lorry/cli/bench.h"
#include "lorry/cli/raw_launch.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/ops.h"

namespace lorry::cli {

std::vector<BenchRow> bench_overhead(const Filter& wanted) {
  const ModeScope no_grad(0, kGradMode);
  const Device device = default_device();
  const Tensor x = ones({64}), y = ones({64});
  std::vector<BenchRow> rows;
  const auto add = [&](const char* name, auto&& call, std::optional<int64_t> bytes = {}) {
    if (wanted(name))
      rows.push_back({.suite = "overhead", .name = name, .time = measure(call, {.device = device}), .bytes = bytes});
  };
  const int64_t three_operands = 3 * x.numel() * size_of(x.dtype());
  if (!device.is_cpu()) add("raw launch", [stream = current_stream(device)] { raw_launch(stream); });
  add("empty 64", [&] { keep(empty({64})); });
  add("view 64 as 8x8", [&] { keep(x.view({8, 8})); });
  add(
      "add 64", [&] { keep(x.add(y)); }, three_operands);
  add(
      "add_ 64", [&] { x.add_(y); }, three_operands);
  // The same with somebody who hears of each call and does nothing.
  static constexpr door::Listener kNobody{
      .bit = kUserMode, .before = [](const door::CallView&, void*&) {}, .after = [](const door::CallView&, void*) {}};
  const door::ListenerScope listening(kNobody);
  add("view 64 as 8x8, heard", [&] { keep(x.view({8, 8})); });
  add(
      "add 64, heard", [&] { keep(x.add(y)); }, three_operands);
  add(
      "add_ 64, heard", [&] { x.add_(y); }, three_operands);
  return rows;
}

}  // namespace lorry::cli
