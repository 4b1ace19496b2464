// layer_norm and rms_norm, forward. Rows are read once and written once. A team holds a row in registers (32,768
// elements of f32, 16,384 of other types). Longer rows are read three times, by one block each, mostly from the
// second-level cache.
//
// The mean is computed in two steps: a first mean, then the mean of the differences from it. Squares are taken around
// the first mean. So a large common offset costs no precision, although sums are f32. Their order depends on a row's
// length alone, so a row has the same bits wherever it lies and whatever the other rows are.

#include "lorry/kernels/rowwise.h"

#include "lorry/kernels/cuda/rowwise/norm_backward.h"
#include "lorry/kernels/cuda/rowwise/norm_row.h"
#include "lorry/kernels/cuda/rowwise/row_steps.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

template <class T>
struct NormRows {
  using C = Accumulate<T>;
  T* out;
  const T* x;
  NormWeights<T> weights;
  C *mean, *rstd;
  int64_t rows, n;
  double eps, one_nth;

  void addresses(auto& visit) const { visit(out, x, weights, mean, rstd); }
};

/// kBlock: kTeamBlock for rows of a few warps, or kMaxBlock.
template <class T, int kRuns, int kBlock>
__global__ __launch_bounds__(kBlock) void norm_held(NormRows<T> a, int lanes) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  __shared__ C slots[3 * kWarp];
  const Team team(lanes);
  const bool centred = a.mean != nullptr, live = team.row < a.rows;
  const T* x = a.x + team.row * a.n;
  const FixedCut<T, int> cut(x, live ? static_cast<int>(a.n) : 0, team);
  HeldRow<T, kRuns> held;
  held.load(x, cut, team, T(0), cut.aligned);

  const Statistics<C> row = statistics_of(held, cut, centred, a.eps, a.one_nth, team, slots);
  if (live && team.lane == 0) {
    if (centred) a.mean[team.row] = row.mean;
    a.rstd[team.row] = row.rstd;
  }
  const bool aligned = a.weights.aligned(cut.head);
#pragma unroll
  for (int k = 0; k < kRuns; ++k) {
    const int j = team.lane + k * team.lanes;
    if (j >= cut.body) break;
#pragma unroll
    for (int e = 0; e < kN; ++e) held.body[k][e] = row.normal(held.body[k][e]);
    a.weights.apply(held.body[k], cut.at(j), aligned);
  }
  if (cut.edge >= 0) held.edge = a.weights.applied(row.normal(held.edge), cut.edge);
  held.store(a.out + team.row * a.n, cut, team);
}

/// One block per row.
// Long: one kernel in three passes over a row, which share its sums and its cut.
template <class T>
__global__ __launch_bounds__(kMaxBlock) void norm_long(NormRows<T> a) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  __shared__ C slots[3 * kWarp];
  const Team team(blockDim.x);
  const bool centred = a.mean != nullptr;
  const T* x = a.x + team.row * a.n;
  T* out = a.out + team.row * a.n;
  const FixedCut<T, int64_t> cut(x, a.n, team);
  const C edge = cut.edge >= 0 ? static_cast<C>(x[cut.edge]) : C(0);

  C about = edge;
  if (centred) {
    each_turn<false>(x, cut, team, T(0), [&](const uint4(&raw)[kFlight], int64_t) {
#pragma unroll
      for (int k = 0; k < kFlight; ++k) {
        C v[kN], part = 0;
        unpack<T>(raw[k], v);
#pragma unroll
        for (int e = 0; e < kN; ++e) part += v[e];
        about += part;
      }
    });
    about = team.sum(about, slots) * static_cast<C>(a.one_nth);
  } else {
    about = 0;
  }
  C sums[2] = {0, 0};
  if (cut.edge >= 0) sums[0] = edge - about, sums[1] = sums[0] * sums[0];
  each_turn<false>(x, cut, team, T(0), [&](const uint4(&raw)[kFlight], int64_t j) {
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      if (j + k * team.lanes >= cut.body) break;
      C v[kN], parts[2] = {0, 0};
      unpack<T>(raw[k], v);
#pragma unroll
      for (int e = 0; e < kN; ++e) {
        const C difference = v[e] - about;
        parts[0] += difference;
        parts[1] = std::fma(difference, difference, parts[1]);
      }
      sums[0] += parts[0];
      sums[1] += parts[1];
    }
  });
  team.sum(sums, slots + kWarp);

  const Statistics<C> row(about, sums[0], sums[1], centred, a.eps, a.one_nth);
  if (team.lane == 0) {
    if (centred) a.mean[team.row] = row.mean;
    a.rstd[team.row] = row.rstd;
  }
  const bool aligned = a.weights.aligned(cut.head), out_aligned = on_16(out + cut.head);
  each_turn<true>(x, cut, team, T(0), [&](const uint4(&raw)[kFlight], int64_t j) {
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      const int64_t at = j + k * team.lanes;
      if (at >= cut.body) break;
      C v[kN];
      unpack<T>(raw[k], v);
#pragma unroll
      for (int e = 0; e < kN; ++e) v[e] = row.normal(v[e]);
      a.weights.apply(v, cut.at(at), aligned);
      store_elements(out + cut.at(at), out_aligned, v);
    }
  });
  if (cut.edge >= 0) out[cut.edge] = T(a.weights.applied(row.normal(edge), cut.edge));
}

/// Calls held.operator()<kRuns, kTeamBlock>() with the first kRuns, at most kMost, that is at least `runs`.
template <int kMost, int kRuns = 1, class Held>
void with_few_runs(int runs, const Held& held) {
  if constexpr (kRuns < kMost) {
    if (runs > kRuns) return with_few_runs<kMost, kRuns + 1>(runs, held);
  }
  held.template operator()<kRuns, kTeamBlock>();
}

void layer_norm(const NormArgs& args, const Stream& stream) {
  const int64_t rows = args.x.size(0), n = args.x.size(1);
  if (rows == 0 || n == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const NormRows<T> a{args.out.as<T>(),
                        args.x.as<T>(),
                        {args.weight.as<T>(), args.bias.as<T>()},
                        args.mean.as<C>(),
                        args.rstd.as<C>(),
                        rows,
                        n,
                        args.eps,
                        1.0 / static_cast<double>(n)};
    // Up to 8 runs have a lane each; then only the elements after them may need more.
    const int tail = static_cast<int>(n % kRun<T>);
    RowPlan plan = plan_norm<T>(n, tail != 0 && n / kRun<T> > 8);
    plan.lanes = std::max(plan.lanes, static_cast<int>(std::bit_ceil(static_cast<unsigned>(tail))));
    const auto held = [&]<int kRuns, int kBlock>() {
      lorry::cuda::launch(stream, {plan.grid(rows), plan.block()}, norm_held<T, kRuns, kBlock>, a, plan.lanes);
    };
    if (plan.lanes <= kTeamBlock) return with_few_runs<kNormRuns<T>>(plan.runs, held);
    with_runs<kMost<T>, kUsual<T>>(
        plan.runs, [&]<int kRuns>() { held.template operator()<kRuns, kMaxBlock>(); },
        [&] {
          lorry::cuda::launch(stream, {static_cast<unsigned>(rows), kMaxBlock}, norm_long<T>, a);
        });
  });
}

}  // namespace

const NormKernels& norm_kernels() {
  static constexpr NormKernels kKernels{layer_norm, layer_norm_backward, true, true};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
