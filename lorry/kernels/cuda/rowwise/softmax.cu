// softmax and log_softmax, forward and backward. Rows are read once and written once: 2 accesses per element forward, 3
// backward. A thread holds rows of less than 16 bytes in registers; a team holds a longer row: forward up to 32,768
// elements of f32 and 16,384 of other types, backward up to 16,384 (8,192 of f64). Forward, still longer rows are held
// in shared memory (57,000 elements of f32, 114,000 of 16 bits); what exceeds that, and longer rows backward, is read a
// second time. A row without a finite maximum becomes NaN, as on the CPU. Forward, the order of sums depends on a row's
// length alone, so a row has the same bits wherever it lies and whatever the other rows are.
// The price: runs of a row that is not aligned are read and written element by element. On an H100 2,048 rows of 50,257
// take 530 us in bf16 and 400 us in f32; 50,264, which keep rows aligned, take 151 and 314.

#include "lorry/kernels/rowwise.h"

#include "lorry/kernels/cuda/rowwise/row_steps.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kLongBlock = 512;

// ---- rows shorter than a run ----------------------------------------------------------------------------------------

// A thread has several rows, so that enough loads are in flight. Its sums have the order of those of a team whose lanes
// have an element each.

constexpr int kShortBlock = 256, kShortRows = 4;

/// Calls f(u, row) for the rows of this thread; its neighbours have the neighbouring rows.
template <class F>
__device__ __forceinline__ void each_short_row(int64_t rows, F f) {
  const int64_t first = int64_t{blockIdx.x} * (kShortBlock * kShortRows) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kShortRows; ++u)
    if (first + u * kShortBlock < rows) f(u, first + u * kShortBlock);
}

/// Calls f(e) for the elements of a row, in registers.
template <int kMost, class F>
__device__ __forceinline__ void each_short_element(int n, F f) {
#pragma unroll
  for (int e = 0; e < kMost; ++e)
    if (e < n) f(e);
}

/// The sum of the terms; those beyond the row must be 0.
template <class C, int kMost>
__device__ __forceinline__ C sum_short_row(C (&terms)[kMost]) {
#pragma unroll
  for (int half = kMost / 2; half > 0; half /= 2)
#pragma unroll
    for (int e = 0; e < half; ++e) terms[e] += terms[e + half];
  return terms[0];
}

template <class T, bool kLog>
__global__ __launch_bounds__(kShortBlock) void softmax_short(T* out, const T* x, int64_t rows, int n) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  C v[kShortRows][kN];
  each_short_element<kN>(
      n, [&](int e) { each_short_row(rows, [&](int u, int64_t row) { v[u][e] = static_cast<C>(x[row * n + e]); }); });
  each_short_row(rows, [&](int u, int64_t row) {
    C max = -kInfinity<C>, terms[kN] = {};
    each_short_element<kN>(n, [&](int e) { max = larger(max, v[u][e]); });
    const C shift = isfinite(max) ? max : kNaN<C>;
    each_short_element<kN>(n, [&](int e) {
      v[u][e] -= shift;
      terms[e] = kLog ? fast_exp(v[u][e]) : v[u][e] = exp_for<T>(v[u][e]);
    });
    const C total = sum_short_row(terms), rest = kLog ? std::log(total) : 1 / total;
    each_short_element<kN>(n, [&](int e) { out[row * n + e] = T(kLog ? v[u][e] - rest : v[u][e] * rest); });
  });
}

template <class T>
__global__ __launch_bounds__(kShortBlock) void softmax_backward_short(T* grad_x, const T* grad, const T* y,
                                                                      int64_t rows, int n, bool log) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  C g[kShortRows][kN], v[kShortRows][kN];
  each_short_element<kN>(n, [&](int e) {
    each_short_row(rows, [&](int u, int64_t row) {
      g[u][e] = static_cast<C>(grad[row * n + e]);
      v[u][e] = static_cast<C>(y[row * n + e]);
    });
  });
  each_short_row(rows, [&](int u, int64_t row) {
    C terms[kN] = {};
    // A term of -0 becomes 0.
    each_short_element<kN>(n, [&](int e) { terms[e] += backward_term<T>(g[u][e], v[u][e], log); });
    const C total = sum_short_row(terms);
    each_short_element<kN>(n,
                           [&](int e) { grad_x[row * n + e] = T(backward_element<T>(g[u][e], v[u][e], total, log)); });
  });
}

/// The grid of these kernels.
lorry::cuda::Shape short_rows(int64_t rows) {
  constexpr int64_t kRows = kShortBlock * kShortRows;
  return {static_cast<unsigned>((rows + kRows - 1) / kRows), kShortBlock};
}

// ---- longer rows ----------------------------------------------------------------------------------------------------

/// softmax and log_softmax have separate kernels: in a common one, values needed by either would occupy registers in
/// both.
template <class T, int kRuns, bool kLog>
__global__ __launch_bounds__(kSoftmaxBlock<T, kRuns>,
                             kHalf<T>&& kRuns == kSoftmaxRuns<T> ? 2 : 1) void softmax_held(T* out, const T* x,
                                                                                            int64_t rows, int n,
                                                                                            int lanes) {
  lorry::cuda::begin_programmatic();
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
  lorry::cuda::begin_programmatic();
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
  lorry::cuda::begin_programmatic();
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
  lorry::cuda::begin_programmatic();
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

/// The elements of a row: dimensions after `dim` have size 1.
int64_t row_length(const Array& x, int64_t dim) { return x.layout.rank ? x.size(static_cast<int>(dim)) : 1; }

void softmax(const Array& out, const Array& x, int64_t dim, bool log, const Stream& stream) {
  if (x.numel() == 0) return;
  const int64_t n = row_length(x, dim), rows = x.numel() / n;
  visit_floating(x.dtype, [&]<class T>(Type<T>) {
    constexpr int kN = kRun<T>;
    if (n < kN)
      return lorry::cuda::launch(stream, short_rows(rows), log ? softmax_short<T, true> : softmax_short<T, false>,
                                 out.as<T>(), x.as<T>(), rows, n);
    RowPlan plan = plan_softmax<T>(n, false);
    plan.lanes = std::max(plan.lanes, static_cast<int>(std::bit_ceil(static_cast<unsigned>(n % kN))));  // for the edge
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

void softmax_backward(const Array& grad_x, const Array& grad, const Array& out, int64_t dim, bool log,
                      const Stream& stream) {
  if (grad.numel() == 0) return;
  const int64_t n = row_length(grad, dim), rows = grad.numel() / n;
  visit_floating(grad.dtype, [&]<class T>(Type<T>) {
    if (n < kRun<T>)
      return lorry::cuda::launch(stream, short_rows(rows), softmax_backward_short<T>, grad_x.as<T>(), grad.as<T>(),
                                 out.as<T>(), rows, n, log);
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
