#pragma once

// Sums, products, maxima and minima, with a map before and a finish after.

#include <cmath>

#include "lorry/kernels/common/compute.h"
#include "lorry/kernels/cuda/reduce/reduce_driver.h"
#include "lorry/kernels/cuda/rowwise/row_steps.h"

namespace lorry::kernels::cuda {

/// How totals are combined and written. C is the compute type.
template <class C>
struct FoldEnd {
  using Cell = Total<C>;

  Fold fold;
  Map map;
  Finish after;
  DType out_dtype;
  double parameter;
  void* out;

  explicit FoldEnd(const FoldArgs& args)
      : fold(args.fold),
        map(args.map),
        after(args.finish),
        out_dtype(args.out.dtype),
        parameter(args.parameter),
        out(args.out.data) {}
  void addresses(auto& visit) const { visit(out); }

  __device__ Cell identity() const { return fold_identity<Cell>(fold); }
  __device__ void combine(Cell& into, const Cell& from) const { into = fold_one(fold, into, from); }
  __device__ void finish(int64_t offset, Cell cell) const {
    if constexpr (!std::is_integral_v<Cell>) {
      cell = formula::finished(after, cell, parameter);
    }
    store_as<Cell>(out, out_dtype, offset, cell);
  }
};

/// The fold of elements of type T in registers. Not for Map::power, which only the general kernel supports: it would
/// cost the others registers. Sums of f32 and narrower types are runs summed in f32, with totals in f64. Products of
/// them are in f64 throughout: a product in f32 could overflow although the result does not.
template <class T_, Fold kFold>
struct Folded : FoldEnd<Accumulate<T_>> {
  using T = T_;
  using C = Accumulate<T>;
  using End = FoldEnd<C>;
  using Cell = typename End::Cell;
  using Acc = std::conditional_t<kFold == Fold::sum || kFold == Fold::prod, Cell, C>;
  using Leaf = std::conditional_t<kFold == Fold::prod, Cell, C>;  ///< the type of a run's tree
  static constexpr int kColumns = kRun<T>, kDeep = 8;

  using End::End;
  __device__ Acc start() const { return fold_identity<Acc>(kFold); }
  __device__ Cell cell(Acc acc) const { return acc; }
  __device__ bool unmapped() const { return this->map == Map::none; }
  __device__ C stored(T element) const { return cast<C, T>(element); }
  __device__ C value(T element) const { return formula::mapped(this->map, stored(element)); }
  /// Like FoldEnd's, for a fold known at compile time.
  __device__ void combine(Cell& into, const Cell& from) const { into = fold_one<kFold>(into, from); }
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t, int64_t) const {
    Leaf tree[N];
#pragma unroll
    for (int i = 0; i < N; ++i) tree[i] = v[i];
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) tree[i] = fold_one<kFold>(tree[i], tree[i + half]);
    acc = fold_one<kFold, Acc>(acc, tree[0]);
  }
};

// ---- rows that a team reads at once ---------------------------------------------------------------------------------

constexpr int kHeldBlock = 256;  ///< threads
constexpr int kLanesEach = 4;    ///< of a row, in a thread of fold_long

struct HeldRows {
  int64_t count;
  int32_t body, lanes;  ///< runs of a row; threads per row
  bool once;            ///< too many bytes to stay in the second-level cache until they are read again
  WideIndexer<2> output_dims;

  void addresses(auto& visit) const { visit(); }
};

/// The runs of a row that belong to a lane.
template <class T, int kRuns>
__device__ __forceinline__ void load_runs(const T* row, int body, int lane, int lanes, bool once,
                                          Accumulate<T> (&runs)[kRuns][kRun<T>]) {
  if (on_16(row)) {
    uint4 raw[kRuns] = {};
    const auto load = [&]<bool kOnce>() {
#pragma unroll
      for (int k = 0; k < kRuns; ++k)
        if (lane + k * lanes < body) raw[k] = load16<kOnce>(row + (lane + k * lanes) * kRun<T>);
    };
    once ? load.template operator()<true>() : load.template operator()<false>();
#pragma unroll
    for (int k = 0; k < kRuns; ++k) unpack<T>(raw[k], runs[k]);
  } else {
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int j = lane + k * lanes;
#pragma unroll
      for (int e = 0; e < kRun<T>; ++e) runs[k][e] = static_cast<Accumulate<T>>(j < body ? row[j * kRun<T> + e] : T(0));
    }
  }
}

/// Folds contiguous rows like a generated kernel (fused/emit_rows.h), so that a fused reduction has the same bits.
template <class T, Fold kFold, int kRuns>
__global__ void __launch_bounds__(kHeldBlock)
    fold_held(const FoldEnd<Accumulate<T>> end, const T* x, const HeldRows rows) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  using Cell = FoldCell<kFold, C>;
  __shared__ Cell slots[kWarp];
  const Team team(rows.lanes);
  const bool live = team.row < rows.count;
  const int body = live ? rows.body : 0;
  const auto offset = [&](int operand) {
    int64_t at[2] = {};
    if (live) rows.output_dims(team.row, at);
    return at[operand];
  };
  C runs[kRuns][kRun<T>];
  load_runs(x + offset(0), body, team.lane, team.lanes, rows.once, runs);
  const auto fold = [&](Map map) { return fold_runs<T, kFold>(runs, map, body, team.lane, team.lanes); };
  Cell total[1] = {end.map == Map::none ? fold(Map::none) : fold(end.map)};  // the first without a test per element
  team.fold_to_first<kHeldBlock / kWarp>(total, fold_identity<Cell>(kFold), slots,
                                         [](Cell a, Cell b) { return fold_one<kFold>(a, b); });
  if (live && team.lane == 0) end.finish(offset(1), total[0]);  // computed here, as no other lane needs it
}

/// The same for rows of many lanes; a block has a row, and a thread the work of kLanesEach lanes. Of such small
/// blocks, several run at once, so that some load while others add up. Warp w does what warps w, w + warps, w + 2 *
/// warps, ... of a whole team would do.
template <class T, Fold kFold, int kRuns>
__global__ void __launch_bounds__(kHeldBlock)
    fold_long(const FoldEnd<Accumulate<T>> end, const T* x, const HeldRows rows) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  using Cell = FoldCell<kFold, C>;
  __shared__ Cell slots[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  const auto fold = [](Cell a, Cell b) { return fold_one<kFold>(a, b); };
  int64_t at[2];
  rows.output_dims(int64_t{blockIdx.x}, at);
  C runs[kLanesEach][kRuns][kRun<T>];
  Cell totals[kLanesEach];
#pragma unroll
  for (int i = 0; i < kLanesEach; ++i) {
    const int mine = (warp + i * warps) * kWarp + lane;
    load_runs(x + at[0], mine < rows.lanes ? rows.body : 0, mine, rows.lanes, rows.once, runs[i]);
  }
#pragma unroll
  for (int i = 0; i < kLanesEach; ++i) {
    const int mine = (warp + i * warps) * kWarp + lane;
    const auto fold_mine = [&](Map map) {
      return fold_runs<T, kFold>(runs[i], map, mine < rows.lanes ? rows.body : 0, mine, rows.lanes);
    };
    totals[i] = end.map == Map::none ? fold_mine(Map::none) : fold_mine(end.map);
  }
  Team::fold_lanes(totals, kWarp, fold);
#pragma unroll
  for (int i = 0; i < kLanesEach; ++i)
    if (lane == 0 && warp + i * warps < kWarp) slots[warp + i * warps] = totals[i];
  __syncthreads();
  if (warp > 0) return;
  Cell total[1] = {lane < rows.lanes / kWarp ? slots[lane] : fold_identity<Cell>(kFold)};
  Team::fold_lanes(total, kWarp, fold);
  if (lane == 0) end.finish(at[1], total[0]);
}

/// Folds the rows of x if a team can read one at once; else returns false.
template <class T, Fold kFold>
bool fold_rows(const FoldArgs& args, const Axes& axes, Stream stream) {
  if (axes.reduced.rank != 1) return false;
  const std::optional<RowPlan> plan = plan_fold<T>(axes.count);
  if (!plan) return false;
  // Bytes that stay whole in the second-level cache (50 MB on an H200); of kCached, a part stays.
  constexpr int64_t kStays = 40 << 20;
  const HeldRows rows{axes.outputs, static_cast<int32_t>(axes.count / kRun<T>), plan->lanes,
                      axes.outputs * axes.count * int64_t{sizeof(T)} > kStays, WideIndexer<2>(axes.output_dims)};
  const bool is_long = plan->lanes > kHeldBlock;
  const unsigned warps = static_cast<unsigned>((plan->lanes / kWarp + kLanesEach - 1) / kLanesEach);
  const lorry::cuda::Shape shape{plan->grid(axes.outputs),
                                 is_long ? warps * kWarp : static_cast<unsigned>(plan->block())};
  with_runs<kUsual<T>>(
      plan->runs,
      [&]<int kRuns>() {
        const auto kernel = is_long ? fold_long<T, kFold, kUsual<T>> : fold_held<T, kFold, kRuns>;
        lorry::cuda::launch(stream, shape, kernel, FoldEnd<Accumulate<T>>(args), static_cast<const T*>(args.x.data),
                            rows);
      },
      [] {});
  return true;
}

/// Runs by rows or by columns; x must have a type with row kernels (has_rows).
template <Fold kFold>
void reduce_folded(const FoldArgs& args, const Axes& axes, Route way, Stream stream) {
  visit_rows(args.x.dtype, [&]<class T>(Type<T>) {
    if constexpr (kFloatingType<T>)
      if (way == Route::rows && fold_rows<T, kFold>(args, axes, stream)) return;
    reduce(Folded<T, kFold>(args), axes, way, args.x.data, stream);
  });
}

// Each is defined in its own source file.
void reduce_sum(const FoldArgs& args, const Axes& axes, Route way, Stream stream);
void reduce_max(const FoldArgs& args, const Axes& axes, Route way, Stream stream);
void reduce_min(const FoldArgs& args, const Axes& axes, Route way, Stream stream);
void reduce_prod(const FoldArgs& args, const Axes& axes, Route way, Stream stream);
/// Whether there is a non-zero element, or no other; how many there are. By rows or by columns.
void reduce_nonzero(const FoldArgs& args, const Axes& axes, Route way, Stream stream);

void moments(const MomentArgs& args, const Stream& stream);
void range(const RangeArgs& args, const Stream& stream);
void extremum(const ExtremumArgs& args, const Stream& stream);
void scan(const ScanArgs& args, const Stream& stream);

}  // namespace lorry::kernels::cuda
