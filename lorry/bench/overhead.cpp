// The cost of a call with almost no work. bench/peers/overhead_torch.{cpp,py} make the same calls in PyTorch.

#include "lorry/bench/suites.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/profile/raw_launch.h"
#endif
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {

using profile::do_not_optimize;

std::vector<Result> overhead_suite(const Filter& filter) {
  const ModeScope no_grad(0, kGradMode);
  const Device device = default_device();
  const Tensor x = ones({64}), y = ones({64});
  std::vector<Result> rows;
  const auto add = [&](const char* name, auto&& call, std::optional<int64_t> bytes = {}) {
    if (filter(name))
      rows.push_back(
          {.suite = "overhead", .name = name, .time = profile::benchmark(call, {.device = device}), .bytes = bytes});
  };
  const int64_t three_operands = 3 * x.numel() * size_of(x.dtype());
#ifdef LORRY_WITH_CUDA
  if (!device.is_cpu()) add("raw launch", [stream = current_stream(device)] { profile::raw_launch(stream); });
#endif
  add("empty 64", [&] { do_not_optimize(empty({64})); });
  add("view 64 as 8x8", [&] { do_not_optimize(x.view({8, 8})); });
  add(
      "add 64", [&] { do_not_optimize(x.add(y)); }, three_operands);
  add(
      "add_ 64", [&] { x.add_(y); }, three_operands);
  // The same with a listener that is notified of each call and does nothing.
  static constexpr door::Listener kNobody{
      .bit = kUserMode, .before = [](const door::CallView&, void*&) {}, .after = [](const door::CallView&, void*) {}};
  const door::ListenerScope listening(kNobody);
  add("view 64 as 8x8, heard", [&] { do_not_optimize(x.view({8, 8})); });
  add(
      "add 64, heard", [&] { do_not_optimize(x.add(y)); }, three_operands);
  add(
      "add_ 64, heard", [&] { x.add_(y); }, three_operands);
  return rows;
}

}  // namespace lorry::bench
