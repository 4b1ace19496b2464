// The kernels of meta. Tensors on meta have no elements, so kernels do nothing. Every function is generated from the
// type of its table member; a new kernel needs code here only if it returns something to the host.

#include "lorry/kernels/meta.h"

#include <algorithm>
#include <utility>

#include "lorry/kernels/backend.h"
#include "lorry/kernels/common/kernel_table.h"
#include "lorry/kernels/optim.h"
#include "lorry/kernels/paged.h"
#include "lorry/kernels/quantize.h"
#include "lorry/kernels/tokens.h"

namespace lorry::kernels::meta {
namespace {

constinit thread_local int64_t t_calls = 0;

/// The number of launches of a kernel call, as far as its arguments tell: with Strategy::per_tensor one per entry of
/// its list.
template <class Argument>
int64_t launches(const Argument& argument) {
  if constexpr (requires { argument.list.strategy(); })
    if (argument.list.strategy() == Strategy::per_tensor)
      return std::ranges::count_if(argument.list.entries(), [](const ListEntry& x) { return x.count > 0; });
  return 1;
}

/// Converts to any kernel function: it counts the call, and throws DeviceError if the kernel returns a result to the
/// host.
template <size_t>
struct NoKernel {
  template <class Result, class... Arguments>
  using Kernel = Result (*)(Arguments...);

  template <class Result, class... Arguments>
  constexpr operator Kernel<Result, Arguments...>() const {
    return [](Arguments... arguments) -> Result {
      t_calls += std::max({int64_t{1}, launches(arguments)...});
      if constexpr (!std::is_void_v<Result>) lorry::detail::raise_no_elements("kernel");
    };
  }
};

template <class Table>
constexpr Table kFilled = filled<Table, NoKernel>();

// Kernels that only check elements find no errors, and are not counted.

constexpr PointwiseKernels kPointwise = [] {
  PointwiseKernels kernels = filled<PointwiseKernels, NoKernel>();
  kernels.has_zero = [](const Array&, Stream) { return false; };
  return kernels;
}();
constexpr CopyKernels kCopy = [] {
  CopyKernels kernels = filled<CopyKernels, NoKernel>();
  kernels.join = nullptr;
  return kernels;
}();
constexpr IndexingKernels kIndexing = [] {
  IndexingKernels kernels = filled<IndexingKernels, NoKernel>();
  kernels.check = [](const Array&, int64_t, int64_t, Stream) { return OutOfRange{}; };
  kernels.take_checked = nullptr;
  kernels.put_checked = nullptr;
  kernels.put_rounds_once = nullptr;
  return kernels;
}();
constexpr LossKernels kLoss = [] {
  LossKernels kernels = filled<LossKernels, NoKernel>();
  kernels.check_targets = [](const Array&, int64_t, int64_t, const Stream&) -> int64_t { return -1; };
  kernels.mean = nullptr;
  return kernels;
}();
constexpr MatmulKernels kMatmul = [] {
  MatmulKernels kernels = filled<MatmulKernels, NoKernel>();
  kernels.refused = [](const MatmulArgs&, const MatmulEpilogue&) -> const char* { return nullptr; };
  kernels.with_epilogue = [](const MatmulArgs&, const MatmulEpilogue&, Stream) {
    ++t_calls;
    return true;
  };
  return kernels;
}();
constexpr RandomKernels kRandom = [] {
  RandomKernels kernels = filled<RandomKernels, NoKernel>();
  kernels.bernoulli_each = [](const Array&, const Array&, RandomKey, Stream) {
    ++t_calls;
    return true;
  };
  return kernels;
}();
struct NoFusedKernel final : FusedKernel {
  bool run(std::span<void* const>, std::span<void* const>, Stream) const override {
    ++t_calls;
    return true;
  }
};
constexpr FusedKernels kFused{.make = [](const FusedCall&, Device) -> std::unique_ptr<const FusedKernel> {
                                return std::make_unique<NoFusedKernel>();
                              },
                              .make_rows = [](const RowCall&, Device) -> std::unique_ptr<const FusedKernel> {
                                return std::make_unique<NoFusedKernel>();
                              }};
constexpr OptimKernels kOptim = [] {
  OptimKernels kernels = filled<OptimKernels, NoKernel>();
  formula::Rules::each([&]<class Rule>() {
    RuleTable<Rule>& rule = kernels.rules.of<Rule>();
    rule.f32.prepare = nullptr, rule.f64.prepare = nullptr;  // there is nothing to prepare
  });
  kernels.compiles = [] { return true; };
  kernels.prepare_recorded = [](const RecordedRule&, RecordedBlocks, const StepCall&, const Stream&) { return true; };
  return kernels;
}();

constexpr Backend kTable{
    .attention = &kFilled<AttentionKernels>,
    .copy = &kCopy,
    .creation = &kFilled<CreationKernels>,
    .foreach = &kFilled<ForeachKernels>,
    .fused = &kFused,
    .indexing = &kIndexing,
    .list_norm = &kFilled<ListNormKernels>,
    .loss = &kLoss,
    .matmul = &kMatmul,
    .norm = &kFilled<NormKernels>,
    .optim = &kOptim,
    .paged = &kFilled<PagedKernels>,
    .pointwise = &kPointwise,
    .quantize = &kFilled<QuantizeKernels>,
    .random = &kRandom,
    .reduce = &kFilled<ReduceKernels>,
    .rotary = &kFilled<RotaryKernels>,
    .softmax = &kFilled<SoftmaxKernels>,
    .sort = &kFilled<SortKernels>,
    .tokens = &kFilled<TokenKernels>,
};

}  // namespace

int64_t calls() { return t_calls; }
void count_call() { ++t_calls; }
const Backend& table() { return kTable; }

}  // namespace lorry::kernels::meta
