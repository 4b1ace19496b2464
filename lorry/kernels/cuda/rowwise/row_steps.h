#pragma once

// Operations on a row that a team holds in registers (rows.h). The operators' own kernels and generated kernels
// (fused/emit_rows.h) share them, so both give the same bits. `slots` is shared memory; each call needs its own. All
// threads of a block must take part.

#include "lorry/formula/fold.h"
#include "lorry/kernels/cuda/rowwise/rows.h"

namespace lorry::kernels::cuda {

/// The usual and the maximum number of runs per thread in softmax. Two sums over a team cost as much as ten elements,
/// so a thread of 16-bit elements has 32.
template <class T>
inline constexpr int kSoftmaxRuns = kHalf<T> ? 4 : kUsual<T>;
template <class T>
inline constexpr int kMostSoftmaxRuns = kHalf<T> ? kSoftmaxRuns<T> : kMost<T>;

/// The largest block of a kernel that holds kRuns of softmax.
template <class T, int kRuns>
inline constexpr int kSoftmaxBlock = kRuns < kSoftmaxRuns<T> ? kTeamBlock
                                     : kHalf<T>              ? 512
                                                             : kMaxBlock;

/// The maximum number of runs per lane in a norm of rows that a few warps hold. A lane of 16-bit elements has 32, so
/// that one warp holds 1,024: what each lane computes once per row, and two sums over lanes, cost as much as ten
/// elements.
template <class T>
inline constexpr int kNormRuns = kHalf<T> ? 4 : kUsual<T>;

#ifndef __CUDACC_RTC__
/// The teams for a fold of rows of n elements that are whole runs. None if a lane would get more than kUsual runs.
template <class T>
std::optional<RowPlan> plan_fold(int64_t n) {
  if (n % kRun<T> != 0) return std::nullopt;
  RowPlan plan = plan_rows(n, kRun<T>, false, kUsual<T>);
  plan.runs = static_cast<int>(std::bit_ceil(static_cast<unsigned>(plan.runs)));
  return plan.runs <= kUsual<T> ? std::optional(plan) : std::nullopt;
}

/// Within a warp, lanes get two runs, unless that leaves fewer than 8, which read 128 bytes at a time; then up to
/// kNormRuns until there are kTeamBlock lanes. Longer rows fill a block.
template <class T>
RowPlan plan_norm(int64_t n, bool cut) {
  const int64_t body = n / kRun<T>;
  const int64_t least = std::max<int64_t>({cut ? 2 * kRun<T> : 1, std::min<int64_t>(body, 8), (body + 1) / 2});
  const auto lanes = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(least)));
  if (lanes <= kWarp) return {lanes, body > lanes ? 2 : 1};
  const RowPlan plan = plan_rows(n, kRun<T>, cut, kNormRuns<T>);
  return plan.lanes <= kTeamBlock ? plan : plan_rows(n, kRun<T>, cut, kUsual<T>);
}

/// If the plan has more than kMostSoftmaxRuns runs, the row is too long to be held in registers.
template <class T>
RowPlan plan_softmax(int64_t n, bool cut) {
  RowPlan plan = plan_rows(n, kRun<T>, cut, kSoftmaxRuns<T>);
  if (plan.lanes > kSoftmaxBlock<T, kSoftmaxRuns<T>>) plan.runs = kMostSoftmaxRuns<T> + 1;
  return plan;
}
#endif

#ifdef __CUDACC__

/// Elements beyond the row must be -infinity. A row without a finite maximum becomes NaN. slots: 2 * 32 values.
template <class T, bool kLog, int kRuns, class C = Accumulate<T>>
__device__ __forceinline__ void softmax_row(HeldRow<T, kRuns>& held, const Team& team, C* slots) {
  C max = -kInfinity<C>;
  held.each([&](C v) { max = larger(max, v); });
  max = team.max(max, slots);
  C total = 0;
  // The maximum ignores a NaN, but the sum does not, and makes the whole row NaN.
  const C shift = isfinite(max) ? max : kNaN<C>;
  if constexpr (kLog) {
    held.each([&](C v) { total += fast_exp(v - shift); });
    const C rest = std::log(team.sum(total, slots + kWarp));
    held.each([&](C& v) { v = v - shift - rest; });
  } else {
    held.each([&](C& v) { total += v = exp_for<T>(v - shift); });
    const C scale = 1 / team.sum(total, slots + kWarp);
    held.each([&](C& v) { v *= scale; });
  }
}

/// The term of an element in the sum over a row; below, the gradient of an element. y is the output.
template <class T, class C = Accumulate<T>>
__device__ __forceinline__ C backward_term(C g, C y, bool log) {
  return log ? g : g * y;
}
template <class T, class C = Accumulate<T>>
__device__ __forceinline__ C backward_element(C g, C y, C total, bool log) {
  return log ? g - exp_for<T>(y) * total : y * (g - total);
}

/// Replaces the gradient of the output y of softmax or log_softmax by the gradient of its input. Elements beyond the
/// row must be 0. slots: 32 values.
template <class T, int kRuns, class C = Accumulate<T>>
__device__ __forceinline__ void softmax_backward_row(HeldRow<T, kRuns>& g, const HeldRow<T, kRuns>& y, bool log,
                                                     const Team& team, C* slots) {
  C total = backward_term<T>(g.edge, y.edge, log);
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) total += backward_term<T>(g.body[k][e], y.body[k][e], log);
  total = team.sum(total, slots);
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) g.body[k][e] = backward_element<T>(g.body[k][e], y.body[k][e], total, log);
  g.edge = backward_element<T>(g.edge, y.edge, total, log);
}

/// The type in which runs are folded: only sums need more than an element has.
template <formula::Fold kFold, class C>
using FoldCell = std::conditional_t<kFold == formula::Fold::sum, formula::Total<C>, C>;

/// Folds the runs of a lane that are before run `body`: each run as a tree, and the runs in order.
template <class T, formula::Fold kFold, int kRuns, class C = Accumulate<T>>
__device__ __forceinline__ FoldCell<kFold, C> fold_runs(const C (&runs)[kRuns][kRun<T>], formula::Map map, int body,
                                                        int lane, int lanes) {
  using Cell = FoldCell<kFold, C>;
  Cell total = formula::fold_identity<Cell>(kFold);
#pragma unroll
  for (int k = 0; k < kRuns; ++k) {
    if (lane + k * lanes >= body) continue;
    C tree[kRun<T>];
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) tree[e] = formula::mapped(map, runs[k][e]);
#pragma unroll
    for (int half = kRun<T> / 2; half > 0; half /= 2)
#pragma unroll
      for (int e = 0; e < half; ++e) tree[e] = formula::fold_one<kFold>(tree[e], tree[e + half]);
    total = formula::fold_one<kFold>(total, static_cast<Cell>(tree[0]));
  }
  return total;
}

/// Folds a row of `body` whole runs that a team holds. All its threads get the total. slots: 32 values.
template <class T, formula::Fold kFold, int kRuns, class C = Accumulate<T>>
__device__ __forceinline__ FoldCell<kFold, C> fold_row(const C (&runs)[kRuns][kRun<T>], formula::Map map, int body,
                                                       const Team& team, FoldCell<kFold, C>* slots) {
  using Cell = FoldCell<kFold, C>;
  Cell total[1] = {fold_runs<T, kFold>(runs, map, body, team.lane, team.lanes)};
  team.fold(total, formula::fold_identity<Cell>(kFold), slots,
            [](Cell a, Cell b) { return formula::fold_one<kFold>(a, b); });
  // Of 0 and -0, or of two NaNs, lanes may have chosen different ones.
  if constexpr (kFold != formula::Fold::sum) total[0] = team.first(total[0]);
  return total[0];
}

/// 1 / sqrt(x), rounded to C. For f32: an approximation and Newton's step in f64, a fifth of the work of f64's own.
template <class C>
__device__ __forceinline__ C reciprocal_root(double x) {
  if constexpr (sizeof(C) == sizeof(float)) {
    const float narrow = static_cast<float>(x), guess = rsqrt(narrow);
    if (narrow >= std::numeric_limits<float>::min() && narrow <= std::numeric_limits<float>::max()) {
      const double g = guess, error = std::fma(-x * g, g, 1.0);
      return std::fma(0.5f * guess, static_cast<float>(error), guess);
    }
  }
  return static_cast<C>(rsqrt(x));
}

/// Statistics that map a row to its normalised form: fma(x - mean, rstd, rest).
template <class C>
struct Statistics {
  C mean, rstd, rest;

  /// Computes them from the sums of (x - about) and of its square.
  __device__ Statistics(C about, C differences, C squares, bool centred, double eps, double one_nth) {
    const double shift = centred ? differences * one_nth : 0, exact = about + shift;
    const double variance = squares * one_nth - shift * shift;
    mean = static_cast<C>(exact);
    rstd = reciprocal_root<C>((variance < 0 ? 0 : variance) + eps);
    rest = static_cast<C>(mean - exact) * rstd;
  }
  __device__ C normal(C x) const { return std::fma(x - mean, rstd, rest); }
};

/// Computes the statistics of a row. The mean is computed in two steps (norm.cu). Elements beyond the row must be 0.
/// slots: 3 * 32 values.
template <class T, int kRuns, class C = Accumulate<T>>
__device__ __forceinline__ Statistics<C> statistics_of(HeldRow<T, kRuns>& held, const Cut<T, int>& cut, bool centred,
                                                       double eps, double one_nth, const Team& team, C* slots) {
  C about = 0;
  if (centred) {
    held.each([&](C v) { about += v; });
    about = team.sum(about, slots) * static_cast<C>(one_nth);
  }
  C sums[2] = {0, 0};
  const auto add = [&](C v) {
    const C difference = v - about;
    sums[0] += difference;
    sums[1] = std::fma(difference, difference, sums[1]);
  };
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
    if (team.lane + k * team.lanes < cut.body)
#pragma unroll
      for (int e = 0; e < kRun<T>; ++e) add(held.body[k][e]);
  if (cut.edge >= 0) add(held.edge);
  team.sum(sums, slots + kWarp);
  return Statistics<C>(about, sums[0], sums[1], centred, eps, one_nth);
}

#endif  // __CUDACC__

}  // namespace lorry::kernels::cuda
