// Cross entropy and negative log-likelihood. Forward reads each row of logits once, with a running maximum and sum per
// thread, for any length. Backward reads it once more and writes its gradient. Accesses per element: 1 forward, 2
// backward (nll: 0 and 1).
//
// Targets are not checked in advance, because that would wait for the device. A row whose target is neither a class nor
// ignore_index is reported through the device's slot (device/cuda/device_assert.h) and has weight 0.

#include "lorry/kernels/rowwise.h"

#include "lorry/base/modes.h"
#include "lorry/kernels/cuda/common/bulk_copy.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/rowwise/row_steps.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

using lorry::cuda::AssertSite;
using lorry::cuda::DeviceAssert;

/// Small teams, several per multiprocessor: while some finish a row, others read. Long rows have larger teams, because
/// the rows that are read at a time should fit into the second-level cache (cross_entropy_with_gradient_rows).
constexpr int kLargestTeam = 512, kUsualTeam = 256;
constexpr int64_t kLongRow = 64 << 10;  ///< bytes
/// The maximum number of turns in which a row of shared memory is read.
constexpr int kMostTurns = 8;
template <class T>
constexpr int kTeamsHeld = sizeof(T) == 8 ? 1 : 2;

template <class T>
struct ClassRows {
  const T *x, *weight;
  const int64_t* target;
  int64_t rows, classes, step;  ///< rows of x (or of the gradient, if there is no x) begin `step` elements apart
  int64_t ignore_index;
  double smoothing;            ///< 0: none
  const double* total_weight;  ///< null: every class has weight 1
  AssertSite site;

  void addresses(auto& visit) const { visit(x, weight, target, total_weight); }

  /// The class of a row; -1 if the row has weight 0. All threads may call it; only those with `speaks` report errors.
  __device__ int64_t class_of(int64_t row, bool speaks) const {
    if (row >= rows) return -1;
    const int64_t t = target[row];
    if (t == ignore_index) return -1;
    if (t >= 0 && t < classes) return t;
    if (speaks) site.report(DeviceAssert::target, t, 0, classes);
    return -1;
  }
  __device__ Accumulate<T> weight_of(int64_t t) const {
    return weight ? static_cast<Accumulate<T>>(weight[t]) : Accumulate<T>(1);
  }
  __device__ double smooth() const { return smoothing / static_cast<double>(classes); }
  __device__ double weights() const { return total_weight ? *total_weight : static_cast<double>(classes); }
};

template <class C>
struct RowLoss {
  double loss;
  C logsumexp;
};

/// The loss of a row of class t, the same in all lanes. slots: 3 * 32 values. kSmooth: with label smoothing. runs:
/// where the runs of the body are read, as if the row began there; x, or a copy, for whose turns `wait` waits.
template <bool kSmooth, class T, class Wait, class C = Accumulate<T>>
__device__ __forceinline__ RowLoss<C> loss_of_row(const ClassRows<T>& a, const T* x, const T* runs,
                                                  const Cut<T, int64_t>& cut, int64_t t, const Team& team, C* slots,
                                                  Wait wait) {
  constexpr int kN = kRun<T>;
  const C own = t < 0 ? C(0) : static_cast<C>(x[t]);
  LogSum<C> total;
  C dot = 0;  // the sum of weight * x
  const C edge[1][1] = {{cut.edge >= 0 ? static_cast<C>(x[cut.edge]) : -kInfinity<C>}};
  total.add(edge);
  if (kSmooth && cut.edge >= 0) dot = a.weight_of(cut.edge) * edge[0][0];
  const bool weight_aligned = on_16(a.weight + cut.head);
  each_turn<false>(
      runs, cut, team, T(-kInfinity<C>),
      [&](const uint4(&raw)[kFlight], int64_t j) {
        C v[kFlight][kN];
#pragma unroll
        for (int k = 0; k < kFlight; ++k) unpack<T>(raw[k], v[k]);
        total.add(v);
        if constexpr (kSmooth) {
#pragma unroll
          for (int k = 0; k < kFlight; ++k) {
            if (j + k * team.lanes >= cut.body) break;
            C w[kN], part = 0;
            if (a.weight) load_elements(a.weight + cut.at(j + k * team.lanes), weight_aligned, w);
#pragma unroll
            for (int e = 0; e < kN; ++e) part += a.weight ? w[e] * v[k][e] : v[k][e];
            dot += part;
          }
        }
      },
      wait);
  total.combine(team, slots);
  if constexpr (kSmooth) dot = team.sum(dot, slots + 2 * kWarp);
  if (t < 0) return {0, 0};
  const double exact =
      total.finite() ? static_cast<double>(total.max) + std::log(static_cast<double>(total.sum)) : kNaN<double>;
  double loss = (1 - a.smoothing) * a.weight_of(t) * (exact - own);
  if constexpr (kSmooth) loss += a.smooth() * (a.weights() * exact - dot);
  return {loss, static_cast<C>(exact)};
}

template <class T, bool kSmooth>
__global__ __launch_bounds__(kLargestTeam, kTeamsHeld<T>) void cross_entropy_rows(ClassRows<T> a, Accumulate<T>* losses,
                                                                                  Accumulate<T>* row_weights,
                                                                                  Accumulate<T>* logsumexp, int lanes) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  __shared__ C slots[3 * kWarp];
  const Team team(lanes);
  const int64_t t = a.class_of(team.row, team.lane == 0);
  const T* const x = a.x + team.row * a.step;
  const RowLoss<C> row =
      loss_of_row<kSmooth>(a, x, x, Cut<T, int64_t>(x, t < 0 ? 0 : a.classes, team), t, team, slots, Ready());
  if (team.lane != 0 || team.row >= a.rows) return;
  losses[team.row] = static_cast<C>(row.loss);
  row_weights[team.row] = t < 0 ? C(0) : a.weight_of(t);
  logsumexp[team.row] = row.logsumexp;
}

/// A row of gradients: softmax * probability - even * weights, minus `own` at the class.
template <class T>
struct RowGradient {
  using C = Accumulate<T>;
  C logsumexp, probability, even, own;
  int64_t target;

  template <int N>
  __device__ __forceinline__ void take_own(C (&v)[N], int64_t first) const {
    if (target < first || target >= first + N) return;
#pragma unroll
    for (int e = 0; e < N; ++e)
      if (first + e == target) v[e] -= own;
  }
};

/// Writes the gradient of a row of class t, perhaps over x. scale: what multiplies the gradient of the row's loss.
/// runs: where the runs of the body are read, as if the row began there; x, or (kCopied) a copy in shared memory.
template <bool kCopied, class T, class C = Accumulate<T>>
__device__ __forceinline__ void write_gradient(const ClassRows<T>& a, const T* x, const T* runs, T* to,
                                               const Cut<T, int64_t>& cut, int64_t t, double scale, C logsumexp,
                                               const Team& team) {
  constexpr int kN = kRun<T>;
  const bool aligned = on_16(to + cut.head), weight_aligned = on_16(a.weight + cut.head);
  if (t < 0) {
    const C zeros[kN] = {};
    for (int64_t j = team.lane; j < cut.body; j += team.lanes) store_elements(to + cut.at(j), aligned, zeros);
    if (cut.edge >= 0) to[cut.edge] = T(C(0));
    return;
  }
  const double own = scale * (1 - a.smoothing) * a.weight_of(t);
  const bool smooth = a.smoothing != 0;
  const RowGradient<T> row{logsumexp, static_cast<C>(smooth ? own + scale * a.smooth() * a.weights() : own),
                           static_cast<C>(smooth ? scale * a.smooth() : 0), static_cast<C>(own), t};
  each_turn<!kCopied>(runs, cut, team, T(C(0)), [&](const uint4(&raw)[kFlight], int64_t j) {
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      const int64_t at = j + k * team.lanes;
      if (at >= cut.body) break;
      C v[kN];
      unpack<T>(raw[k], v);
#pragma unroll
      for (int e = 0; e < kN; ++e) v[e] = row.probability * exp_for<T>(v[e] - row.logsumexp);
      if (smooth) {
        C w[kN];
        if (a.weight) load_elements(a.weight + cut.at(at), weight_aligned, w);
#pragma unroll
        for (int e = 0; e < kN; ++e) v[e] = std::fma(-row.even, a.weight ? w[e] : C(1), v[e]);
      }
      row.take_own(v, cut.at(at));
      store_elements(to + cut.at(at), aligned, v);
    }
  });
  if (cut.edge >= 0) {
    C v[1] = {row.probability * exp_for<T>(static_cast<C>(x[cut.edge]) - row.logsumexp)};
    if (smooth) v[0] = std::fma(-row.even, a.weight_of(cut.edge), v[0]);
    row.take_own(v, cut.edge);
    to[cut.edge] = T(v[0]);
  }
}

template <class T>
__global__ __launch_bounds__(kLargestTeam, kTeamsHeld<T>) void cross_entropy_backward_rows(
    ClassRows<T> a, T* grad_x, int64_t grad_step, const Accumulate<T>* scale, int64_t scale_stride,
    const Accumulate<T>* logsumexp, int lanes) {
  lorry::cuda::begin_programmatic();
  const Team team(lanes);
  if (team.row >= a.rows) return;
  const T* const x = a.x + team.row * a.step;
  write_gradient<false>(a, x, x, grad_x + team.row * grad_step, Cut<T, int64_t>(x, a.classes, team),
                        a.class_of(team.row, team.lane == 0), scale[team.row * scale_stride], logsumexp[team.row],
                        team);
}

/// A row's loss, and then its gradient, which may be written over x: each lane writes what it alone has read. kStaged:
/// the body of the row is first copied to shared memory, so that one block of a multiprocessor reads while another
/// computes.
template <class T, bool kSmooth, bool kStaged>
__global__ __launch_bounds__(kLargestTeam, kTeamsHeld<T>) void cross_entropy_with_gradient_rows(
    ClassRows<T> a, T* grad_x, int64_t grad_step, const Accumulate<T>* scale, int64_t scale_stride,
    Accumulate<T>* losses, Accumulate<T>* logsumexp, int lanes) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  extern __shared__ uint4 staged[];
  __shared__ BulkCopy<kMostTurns> copy;
  __shared__ C slots[3 * kWarp];
  const Team team(lanes);
  const bool live = team.row < a.rows;
  const int64_t t = a.class_of(team.row, team.lane == 0);
  const T* const x = a.x + team.row * a.step;
  const Cut<T, int64_t> cut(x, live ? a.classes : 0, team);
  const T* const runs = kStaged ? reinterpret_cast<const T*>(staged) - cut.head : x;
  if (kStaged && t >= 0) {
    if (threadIdx.x == 0)
      copy.start(staged, x + cut.head, static_cast<uint32_t>(cut.body * sizeof(uint4)),
                 static_cast<uint32_t>(kFlight * lanes * sizeof(uint4)));
    __syncthreads();
  }
  const auto wait = [&](int turn) {
    if constexpr (kStaged) copy.wait(turn);
  };
  const RowLoss<C> row =
      loss_of_row<kSmooth>(a, x, runs, t < 0 ? Cut<T, int64_t>(x, 0, team) : cut, t, team, slots, wait);
  // Every lane has read the element of its row's class.
  lanes > kWarp ? __syncthreads() : __syncwarp();
  if (!live) return;
  if (team.lane == 0) {
    losses[team.row] = static_cast<C>(row.loss);
    logsumexp[team.row] = row.logsumexp;
  }
  write_gradient<kStaged>(a, x, runs, grad_x + team.row * grad_step, cut, t, scale[team.row * scale_stride],
                          row.logsumexp, team);
}

/// One thread per row.
template <class T>
__global__ __launch_bounds__(kTeamBlock) void row_weights_of(ClassRows<T> a, Accumulate<T>* row_weights) {
  lorry::cuda::begin_programmatic();
  const int64_t row = int64_t{blockIdx.x} * kTeamBlock + threadIdx.x, t = a.class_of(row, false);
  if (row < a.rows) row_weights[row] = t < 0 ? Accumulate<T>(0) : a.weight_of(t);
}

/// Computes the sum of all class weights for label smoothing. One block.
template <class T>
__global__ __launch_bounds__(kMaxBlock) void add_weights(double* total, const T* weight, int64_t classes) {
  lorry::cuda::begin_programmatic();
  __shared__ double slots[kWarp];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < classes; i += kMaxBlock)
    sum += static_cast<double>(static_cast<Accumulate<T>>(weight[i]));
  sum = Team(kMaxBlock).sum(sum, slots);
  if (threadIdx.x == 0) *total = sum;
}

/// One thread per row.
template <class T>
__global__ __launch_bounds__(kTeamBlock) void nll_rows(ClassRows<T> a, Accumulate<T>* losses,
                                                       Accumulate<T>* row_weights) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  const int64_t row = int64_t{blockIdx.x} * kTeamBlock + threadIdx.x, t = a.class_of(row, true);
  if (row >= a.rows) return;
  const C weight = t < 0 ? C(0) : a.weight_of(t);
  losses[row] = t < 0 ? C(0) : -weight * static_cast<C>(a.x[row * a.step + t]);
  row_weights[row] = weight;
}

template <class T>
__global__ __launch_bounds__(kLargestTeam) void nll_backward_rows(ClassRows<T> a, T* grad_x, const Accumulate<T>* scale,
                                                                  int64_t scale_stride, int lanes) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  const Team team(lanes);
  if (team.row >= a.rows) return;
  T* const to = grad_x + team.row * a.step;
  const Cut<T, int64_t> cut(to, a.classes, team);
  const int64_t t = a.class_of(team.row, team.lane == 0);
  const RowGradient<T> row{0, 0, 0, t < 0 ? C(0) : a.weight_of(t) * scale[team.row * scale_stride], t};
  for (int64_t j = team.lane; j < cut.body; j += team.lanes) {
    C v[kN] = {};
    row.take_own(v, cut.at(j));
    store16(to + cut.at(j), pack<T>(v));
  }
  if (cut.edge >= 0) to[cut.edge] = T(cut.edge == t ? -row.own : C(0));
}

/// The runs of a vector that belong to a lane.
template <class C, int kRuns>
__device__ __forceinline__ void load_runs(const C* x, int body, const Team& team, C (&runs)[kRuns][kRun<C>]) {
#pragma unroll
  for (int k = 0; k < kRuns; ++k) {
    const int j = team.lane + k * team.lanes;
    if (j < body) unpack<C>(load16<false>(x + j * kRun<C>), runs[k]);
  }
}

/// The first team adds up both vectors of `body` runs, in the order of a sum of one row.
template <class C>
__global__ __launch_bounds__(kMaxBlock) void mean_of_rows(void* mean, DType dtype, C* total_weight, const C* losses,
                                                          const C* row_weights, int body, int lanes) {
  lorry::cuda::begin_programmatic();
  using formula::Fold, formula::Map;
  constexpr int kRuns = kUsual<C>;
  __shared__ FoldCell<Fold::sum, C> slots[2 * kWarp];
  const Team team(lanes);
  const int mine = team.row == 0 ? body : 0;
  C loss[kRuns][kRun<C>], weight[kRuns][kRun<C>];
  load_runs(losses, mine, team, loss);
  load_runs(row_weights, mine, team, weight);
  const C total = static_cast<C>(fold_row<C, Fold::sum>(loss, Map::none, mine, team, slots)),
          weights = static_cast<C>(fold_row<C, Fold::sum>(weight, Map::none, mine, team, slots + kWarp));
  if (threadIdx.x > 0) return;
  *total_weight = weights;
  store_as<C>(mean, dtype, 0, total / weights);
}

template <class T>
ClassRows<T> class_rows(const ClassArgs& args, const Array& x, const char* otherwise, Stream stream) {
  return {args.x.as<const T>(),
          args.weight.as<const T>(),
          args.target.as<const int64_t>(),
          x.size(0),
          x.size(1),
          x.stride(0),
          args.ignore_index,
          args.label_smoothing,
          nullptr,
          AssertSite(stream.device.index, running_or(otherwise))};
}

/// Rows are read four runs at a time, so a team has as few threads as give all threads the same number of turns.
RowPlan plan_classes(const Array& x) {
  const int64_t n = x.size(1), body = n * size_of(x.dtype) / 16;
  RowPlan plan = plan_rows(n, static_cast<int>(16 / size_of(x.dtype)), is_cut(x, n), kFlight);
  if (plan.lanes <= kWarp) return plan;
  const int64_t team = n * size_of(x.dtype) < kLongRow ? kUsualTeam : kLargestTeam;
  const int64_t turns = (body + kFlight * team - 1) / (kFlight * team), most = kFlight * turns;
  plan.lanes = static_cast<int>(((body + most - 1) / most + kWarp - 1) / kWarp * kWarp);
  return plan;
}

/// Scratch memory for the sum of the weights, during a launch with smoothing.
template <class T, class F>
void with_total_weight(ClassRows<T> a, Stream stream, F&& f) {
  if (a.smoothing == 0 || !a.weight) return f(a);
  const Scratch total(sizeof(double), stream);
  lorry::cuda::launch(stream, {1, kMaxBlock}, add_weights<T>, total.as<double>(), a.weight, a.classes);
  a.total_weight = total.as<double>();
  f(a);
}

/// Returns -1: the kernels check targets themselves.
int64_t check_targets(const Array&, int64_t, int64_t, const Stream&) { return -1; }

void cross_entropy(const ClassArgs& args, const Array& losses, const Array& row_weights, const Array& logsumexp,
                   const Stream& stream) {
  if (args.x.size(0) == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const RowPlan plan = plan_classes(args.x);
    with_total_weight(class_rows<T>(args, args.x, "cross_entropy", stream), stream, [&](const ClassRows<T>& a) {
      lorry::cuda::launch(stream, {plan.grid(a.rows), static_cast<unsigned>(plan.block())},
                          a.smoothing == 0 ? cross_entropy_rows<T, false> : cross_entropy_rows<T, true>, a,
                          losses.as<C>(), row_weights.as<C>(), logsumexp.as<C>(), plan.lanes);
    });
  });
}

void cross_entropy_backward(const ClassArgs& args, const Array& grad_x, const Array& scale, const Array& logsumexp,
                            const Stream& stream) {
  if (grad_x.numel() == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const RowPlan plan = plan_classes(args.x);
    with_total_weight(class_rows<T>(args, args.x, "cross_entropy_backward", stream), stream,
                      [&](const ClassRows<T>& a) {
                        lorry::cuda::launch(stream, {plan.grid(a.rows), static_cast<unsigned>(plan.block())},
                                            cross_entropy_backward_rows<T>, a, grad_x.as<T>(), grad_x.stride(0),
                                            scale.as<C>(), scale.stride(0), logsumexp.as<C>(), plan.lanes);
                      });
  });
}

/// The rows that are read at a time should fit into the second-level cache, because each is read twice. Shared memory
/// that a block does not use limits how many there are. bytes: of the rows of a block.
int64_t limiting_memory(const lorry::cuda::Properties& gpu, int64_t bytes) {
  const int64_t blocks = gpu.l2_bytes / 2 / gpu.multiprocessors / std::max<int64_t>(bytes, 1);
  return blocks >= 8 ? 0 : most_shared(gpu) / std::max<int64_t>(blocks, 1) - 1024;
}

void cross_entropy_with_gradient(const ClassArgs& args, const Array& losses, const Array& logsumexp,
                                 const Array& grad_x, const Array& scale, const Stream& stream) {
  if (args.x.size(0) == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const lorry::cuda::Properties& gpu = lorry::cuda::properties(stream.device.index);
    const RowPlan plan = plan_classes(args.x);
    const int64_t bytes = args.x.size(1) * size_of(args.x.dtype);
    const bool staged = plan.lanes > kWarp && bytes <= most_shared(gpu) &&
                        bytes <= kMostTurns * kFlight * plan.lanes * 16 &&
                        lorry::cuda::capability(stream.device.index) >= kBulkCapability;
    const auto launch = [&]<bool kSmooth, bool kStaged>(const ClassRows<T>& a) {
      constexpr auto kKernel = cross_entropy_with_gradient_rows<T, kSmooth, kStaged>;
      const int64_t shared = kStaged ? bytes : limiting_memory(gpu, plan.teams() * bytes);
      allow_shared_once<kKernel>(stream.device.index, static_cast<size_t>(most_shared(gpu)));
      lorry::cuda::launch(stream, {plan.grid(a.rows), static_cast<unsigned>(plan.block()), static_cast<size_t>(shared)},
                          kKernel, a, grad_x.as<T>(), grad_x.stride(0), scale.as<C>(), scale.stride(0), losses.as<C>(),
                          logsumexp.as<C>(), plan.lanes);
    };
    with_total_weight(class_rows<T>(args, args.x, "cross_entropy", stream), stream, [&](const ClassRows<T>& a) {
      const bool smooth = a.smoothing != 0;
      if (staged)
        smooth ? launch.template operator()<true, true>(a) : launch.template operator()<false, true>(a);
      else
        smooth ? launch.template operator()<true, false>(a) : launch.template operator()<false, false>(a);
    });
  });
}

bool mean(const Array& mean, const Array& total_weight, const Array& losses, const Array& row_weights,
          const Stream& stream) {
  if (losses.numel() == 0 || !aligned16(losses.data) || !aligned16(row_weights.data)) return false;
  const auto run = [&]<class C>(Type<C>) {
    const std::optional<RowPlan> plan = plan_fold<C>(losses.numel());
    if (!plan) return false;
    lorry::cuda::launch(stream, {1, static_cast<unsigned>(plan->block())}, mean_of_rows<C>, mean.data, mean.dtype,
                        total_weight.as<C>(), losses.as<const C>(), row_weights.as<const C>(), losses.numel() / kRun<C>,
                        plan->lanes);
    return true;
  };
  return losses.dtype == kF64 ? run(Type<double>{}) : run(Type<float>{});
}

void row_weights(const ClassArgs& args, const Array& weights, const Stream& stream) {
  const int64_t rows = args.x.size(0);
  if (rows == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    lorry::cuda::launch(stream, {static_cast<unsigned>((rows + kTeamBlock - 1) / kTeamBlock), kTeamBlock},
                        row_weights_of<T>, class_rows<T>(args, args.x, "cross_entropy", stream),
                        weights.as<Accumulate<T>>());
  });
}

void nll(const ClassArgs& args, const Array& losses, const Array& row_weights, const Stream& stream) {
  const int64_t rows = args.x.size(0);
  if (rows == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    lorry::cuda::launch(stream, {static_cast<unsigned>((rows + kTeamBlock - 1) / kTeamBlock), kTeamBlock}, nll_rows<T>,
                        class_rows<T>(args, args.x, "nll_loss", stream), losses.as<C>(), row_weights.as<C>());
  });
}

void nll_backward(const ClassArgs& args, const Array& grad_x, const Array& scale, const Stream& stream) {
  if (grad_x.numel() == 0) return;
  visit_floating(grad_x.dtype, [&]<class T>(Type<T>) {
    const RowPlan plan = plan_classes(grad_x);
    lorry::cuda::launch(stream, {plan.grid(grad_x.size(0)), static_cast<unsigned>(plan.block())}, nll_backward_rows<T>,
                        class_rows<T>(args, grad_x, "nll_loss_backward", stream), grad_x.as<T>(),
                        scale.as<Accumulate<T>>(), scale.stride(0), plan.lanes);
  });
}

}  // namespace

const LossKernels& loss_kernels() {
  static constexpr LossKernels kKernels{check_targets, cross_entropy, cross_entropy_backward,      nll,
                                        nll_backward,  row_weights,   cross_entropy_with_gradient, mean};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
