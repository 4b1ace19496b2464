// softmax and log_softmax, forward and backward. Rows are read once and written once: 2 accesses per element forward, 3
// backward. A team holds a row in registers: forward up to 32,768 elements of f32 and 16,384 of other types, backward
// up to 16,384 (8,192 of f64). Forward, longer rows are held in shared memory (57,000 elements of f32, 114,000 of 16
// bits); what exceeds that, and longer rows backward, is read a second time. A row without a finite maximum becomes
// NaN, as on the CPU. Forward, the order of sums depends on a row's length alone, so a row has the same bits wherever
// it lies and whatever the other rows are.
// The price: runs of a row that is not aligned are read and written element by element. On an H100 2,048 rows of 50,257
// take 530 us in bf16 and 400 us in f32; 50,264, which keep rows aligned, take 151 and 314.

#include "lorry/kernels/rowwise.h"

#include "lorry/kernels/cuda/rowwise/row_steps.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kLongBlock = 512;

/// softmax and log_softmax have separate kernels: in a common one, values needed by either would occupy registers in
/// both.
template <class T, int kRuns, bool kLog>
__global__ __launch_bounds__(kSoftmaxBlock<T, kRuns>,
                             kHalf<T>&& kRuns == kSoftmaxRuns<T> ? 2 : 1) void softmax_held(T* out, const T* x,
                                                                                            int64_t rows, int n,
                                                                                            int lanes) {
  using C = Accumulate<T>;
  __shared__ C slots[2 * kWarp];
  const Team team(lanes);
  out += team.row * n;
  x += team.row * n;
  const FixedCut<T, int> cut(x, team.row < rows ? n : 0, team);
  HeldRow<T, kRuns> held;
  held.load(x, cut, team, T(-kInfinity<C>), cut.aligned);

  softmax_row<T, kLog>(held, team, slots);
  held.store(out, cut, team);
}

/// One block per row. keep: whether the dynamic shared memory holds the body.
template <class T>
__global__ __launch_bounds__(kMaxBlock) void softmax_long(T* out, const T* x, int64_t n, bool log, bool keep) {
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  extern __shared__ uint4 held[];
  __shared__ C slots[2 * kWarp];
  const Team team(blockDim.x);
  out += team.row * n;
  x += team.row * n;
  const FixedCut<T, int64_t> cut(x, n, team);

  LogSum<C> total;
  C edge[1][1] = {{cut.edge >= 0 ? static_cast<C>(x[cut.edge]) : -kInfinity<C>}};
  total.add(edge);
  each_turn<false>(x, cut, team, T(-kInfinity<C>), [&](const uint4(&raw)[kFlight], int64_t j) {
    C v[kFlight][kN];
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      unpack<T>(raw[k], v[k]);
      if (keep && j + k * team.lanes < cut.body) held[j + k * team.lanes] = raw[k];
    }
    total.add(v);
  });
  total.combine(team, slots);

  const C shift = total.finite() ? total.max : kNaN<C>;
  const C rest = log ? std::log(total.sum) : 1 / total.sum;
  const auto result = [&](C v) { return log ? v - shift - rest : exp_for<T>(v - shift) * rest; };
  const bool aligned = on_16(out + cut.head);
  // Each lane reads only the runs that it stored itself.
#pragma unroll 4
  for (int64_t j = team.lane; j < cut.body; j += team.lanes) {
    C v[kN];
    unpack<T>(keep ? held[j] : cut.template load<true>(x, j), v);
#pragma unroll
    for (int e = 0; e < kN; ++e) v[e] = result(v[e]);
    store_elements(out + cut.at(j), aligned, v);
  }
  if (cut.edge >= 0) out[cut.edge] = T(result(edge[0][0]));
}

template <class T, int kRuns>
__global__ __launch_bounds__(kBlockOf<T, kRuns>) void softmax_backward_held(T* grad_x, const T* grad, const T* y,
                                                                            int64_t rows, int n, int lanes, bool log) {
  using C = Accumulate<T>;
  __shared__ C slots[kWarp];
  const Team team(lanes);
  grad_x += team.row * n;
  grad += team.row * n;
  y += team.row * n;
  const Cut<T, int> cut(grad, team.row < rows ? n : 0, team);
  HeldRow<T, kRuns> g, held;
  g.load(grad, cut, team, T(0));
  held.load(y, cut, team, T(0), on_16(y + cut.head));

  softmax_backward_row(g, held, log, team, slots);
  g.store(grad_x, cut, team);
}

/// One block per row, which is read twice (the output of log_softmax once).
template <class T>
__global__ __launch_bounds__(kLongBlock) void softmax_backward_long(T* grad_x, const T* grad, const T* y, int64_t n,
                                                                    bool log) {
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  __shared__ C slots[kWarp];
  const Team team(blockDim.x);
  grad_x += team.row * n;
  grad += team.row * n;
  y += team.row * n;
  const Cut<T, int64_t> cut(grad, n, team);
  const bool y_aligned = on_16(y + cut.head), out_aligned = on_16(grad_x + cut.head);

  C total = cut.edge < 0 ? C(0) : backward_term<T>(static_cast<C>(grad[cut.edge]), static_cast<C>(y[cut.edge]), log);
#pragma unroll 4
  for (int64_t j = team.lane; j < cut.body; j += team.lanes) {
    C g[kN], v[kN] = {};
    unpack<T>(load16<false>(grad + cut.at(j)), g);
    if (!log) load_elements(y + cut.at(j), y_aligned, v);
#pragma unroll
    for (int e = 0; e < kN; ++e) total += backward_term<T>(g[e], v[e], log);
  }
  total = team.sum(total, slots);
#pragma unroll 4
  for (int64_t j = team.lane; j < cut.body; j += team.lanes) {
    C g[kN], v[kN];
    unpack<T>(load16<true>(grad + cut.at(j)), g);
    load_elements(y + cut.at(j), y_aligned, v);
#pragma unroll
    for (int e = 0; e < kN; ++e) g[e] = backward_element<T>(g[e], v[e], total, log);
    store_elements(grad_x + cut.at(j), out_aligned, g);
  }
  if (cut.edge >= 0)
    grad_x[cut.edge] = T(backward_element<T>(static_cast<C>(grad[cut.edge]), static_cast<C>(y[cut.edge]), total, log));
}

int64_t row_length(const Array& x) { return x.layout.rank ? x.size(x.layout.rank - 1) : 1; }

void softmax(const Array& out, const Array& x, bool log, const Stream& stream) {
  if (x.numel() == 0) return;
  const int64_t n = row_length(x), rows = x.numel() / n;
  visit_floating(x.dtype, [&]<class T>(Type<T>) {
    constexpr int kN = kRun<T>;
    const RowPlan plan = plan_softmax<T>(n, n % kRun<T> != 0);
    const auto held = [&]<int kRuns>() {
      lorry::cuda::launch(stream, {plan.grid(rows), plan.block()},
                          log ? softmax_held<T, kRuns, true> : softmax_held<T, kRuns, false>, out.as<T>(), x.as<T>(),
                          rows, n, plan.lanes);
    };
    with_runs<kMostSoftmaxRuns<T>>(plan.runs, held, [&] {
      constexpr size_t kShared = 222 << 10, kTwoBlocks = 110 << 10;
      const size_t bytes = static_cast<size_t>(n / kN) * 16;
      const bool keep = bytes <= kShared;
      if (keep) allow_shared_once<softmax_long<T>>(stream.device.index, kShared);
      const int block = keep && bytes > kTwoBlocks ? kMaxBlock : kLongBlock;
      lorry::cuda::launch(stream, {static_cast<unsigned>(rows), block, keep ? bytes : 0}, softmax_long<T>, out.as<T>(),
                          x.as<T>(), n, log, keep);
    });
  });
}

void softmax_backward(const Array& grad_x, const Array& grad, const Array& out, bool log, const Stream& stream) {
  if (grad.numel() == 0) return;
  const int64_t n = row_length(grad), rows = grad.numel() / n;
  visit_floating(grad.dtype, [&]<class T>(Type<T>) {
    const RowPlan plan = plan_rows(n, kRun<T>, is_cut(grad, n), kUsual<T>);
    const auto held = [&]<int kRuns>() {
      lorry::cuda::launch(stream, {plan.grid(rows), plan.block()}, softmax_backward_held<T, kRuns>, grad_x.as<T>(),
                          grad.as<T>(), out.as<T>(), rows, n, plan.lanes, log);
    };
    with_runs<kUsual<T>>(plan.runs, held, [&] {
      lorry::cuda::launch(stream, {static_cast<unsigned>(rows), kLongBlock}, softmax_backward_long<T>, grad_x.as<T>(),
                          grad.as<T>(), out.as<T>(), n, log);
    });
  });
}

}  // namespace

const SoftmaxKernels& softmax_kernels() {
  static constexpr SoftmaxKernels kKernels{softmax, softmax_backward};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
