#pragma once

// Sums, products, maxima and minima, with a map before and a finish after.

#include <cmath>

#include "lorry/kernels/common/compute.h"
#include "lorry/kernels/cuda/reduce/reduce_driver.h"

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
/// cost the others registers. Sums of f32 and narrower types are runs summed in f32, with totals in f64.
template <class T_, Fold kFold>
struct Folded : FoldEnd<Accumulate<T_>> {
  using T = T_;
  using C = Accumulate<T>;
  using End = FoldEnd<C>;
  using Cell = typename End::Cell;
  using Acc = std::conditional_t<kFold == Fold::sum, Cell, C>;
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
    C tree[N];
#pragma unroll
    for (int i = 0; i < N; ++i) tree[i] = v[i];
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) tree[i] = fold_one<kFold>(tree[i], tree[i + half]);
    acc = fold_one<kFold, Acc>(acc, tree[0]);
  }
};

/// Runs by rows or by columns; x must have a type with row kernels (has_rows).
template <Fold kFold>
void reduce_folded(const FoldArgs& args, const Axes& axes, Route way, Stream stream) {
  visit_rows(args.x.dtype, [&]<class T>(Type<T>) { reduce(Folded<T, kFold>(args), axes, way, args.x.data, stream); });
}

// Each is defined in its own source file.
void reduce_sum(const FoldArgs& args, const Axes& axes, Route way, Stream stream);
void reduce_max(const FoldArgs& args, const Axes& axes, Route way, Stream stream);
void reduce_min(const FoldArgs& args, const Axes& axes, Route way, Stream stream);

void moments(const MomentArgs& args, const Stream& stream);
void extremum(const ExtremumArgs& args, const Stream& stream);
void scan(const ScanArgs& args, const Stream& stream);

}  // namespace lorry::kernels::cuda
