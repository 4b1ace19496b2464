// The cost of a call with almost no work, and of the stages that it consists of. bench/peers/overhead_torch.{cpp,py}
// make the same calls in PyTorch.

#include "lorry/bench/suites.h"
#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/pointwise_call.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/profile/raw_launch.h"
#endif

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

/// Notified of each call; does nothing.
constexpr door::Listener kNobody{
    .bit = kUserMode, .before = [](const door::CallView&, void*&) {}, .after = [](const door::CallView&, void*) {}};

class OverheadCases {
 public:
  explicit OverheadCases(const Filter& filter) : filter_(filter) {}

  template <class F>
  void add(const char* name, F&& call, std::optional<int64_t> bytes = {}) {
    if (!filter_(name)) return;
    rows_.push_back({.suite = "overhead",
                     .name = name,
                     .time = profile::benchmark(call, {.device = default_device()}),
                     .bytes = bytes});
  }
  /// A stage: `call` does what `without` does, and the stage. Both are measured, side by side; the row is that of
  /// `call`, and says by how much it takes longer.
  template <class F, class G>
  void add_stage(const char* name, const char* without_name, F&& without, G&& call) {
    if (!filter_(name)) return;
    const profile::PairResult pair = profile::benchmark_pair(without, call, {.device = default_device()});
    Result row{.suite = "overhead", .name = name, .time = pair.second};
    row.compared_with = without_name;
    row.difference_us = pair.difference_us;
    row.difference_low_us = pair.difference_low_us;
    row.difference_high_us = pair.difference_high_us;
    rows_.push_back(row);
  }
  std::vector<Result> rows() const { return rows_; }

 private:
  const Filter& filter_;
  std::vector<Result> rows_;
};

/// What `x.add(y)` of 64 floats consists of: each stage by two calls, one of which lacks it.
void add_stages(OverheadCases& suite, const Tensor& x, const Tensor& y) {
  const Stream stream = current_stream(x.device());
  const auto& kernels = *kernels::backend(x.device()).pointwise;
  const auto operand = [](const Tensor& t) -> kernels::PointwiseOperand {
    return {t.data_ptr(), &t.layout(), t.dtype(), t.is_contiguous()};
  };
  const std::vector<Operand> operands{x, y};
  const ops::Resolved add = ops::resolve(Op::add, operands);
  const kernels::PointwiseCall call{
      .op = add.row, .compute = add.compute, .arity = 2, .out = operand(x), .in = {operand(x), operand(y), {}, {}}};
  const auto kernel = [&] { kernels.run(call, stream); };
  const auto in_place = [&] { x.add_(y); };
  // Both make a listener, so that the difference is what it hears.
  const auto heard = [&] {
    const door::ListenerScope listening(kNobody);
    x.add_(y);
  };
  const auto unheard = [&] {
    x.add_(y);
    const door::ListenerScope too_late(kNobody);
  };
  const Tensor leaf = x.detach().clone().requires_grad_();
  const auto recorded = [&] {
    const ModeScope gradients(kGradMode, 0);
    do_not_optimize(leaf.add(y));
  };
  suite.add("stage: kernel", kernel);
  suite.add_stage("stage: checks and layout", "kernel", kernel, in_place);
  suite.add_stage("stage: allocation", "checks and layout", in_place, [&] { do_not_optimize(x.add(y)); });
  suite.add_stage(
      "stage: gradient", "allocation", [&] { do_not_optimize(x.add(y)); }, recorded);
  suite.add_stage("stage: announcement", "a listener that comes too late", unheard, heard);
}

}  // namespace

std::vector<Result> overhead_suite(const Filter& filter) {
  const ModeScope no_grad(0, kGradMode);
  const Tensor x = ones({64}), y = ones({64});
  const int64_t three_operands = 3 * x.numel() * size_of(x.dtype());
  OverheadCases suite(filter);
#ifdef LORRY_WITH_CUDA
  if (!default_device().is_cpu())
    suite.add("raw launch", [stream = current_stream(default_device())] { profile::raw_launch(stream); });
#endif
  const auto view = [&] { do_not_optimize(x.view({8, 8})); };
  const auto add = [&] { do_not_optimize(x.add(y)); };
  const auto add_in_place = [&] { x.add_(y); };
  suite.add("empty 64", [] { do_not_optimize(empty({64})); });
  suite.add("view 64 as 8x8", view);
  suite.add("add 64", add, three_operands);
  suite.add("add_ 64", add_in_place, three_operands);
  {
    const door::ListenerScope listening(kNobody);
    suite.add("view 64 as 8x8, heard", view);
    suite.add("add 64, heard", add, three_operands);
    suite.add("add_ 64, heard", add_in_place, three_operands);
  }
  add_stages(suite, x, y);
  return suite.rows();
}

}  // namespace lorry::bench
