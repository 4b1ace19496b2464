// The family's table, and the folds that run element by element: those of narrow integers, powers, and elements with
// gaps between them.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

/// Not inlined, because it is long and rarely used.
template <class C>
__device__ __noinline__ C power(C v, C exponent) {
  return std::pow(std::abs(v), exponent);
}

/// Adds elements one after the other.
template <class Cell, class C, int N>
__device__ __forceinline__ void add_in_order(Cell& total, const C (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) total = fold_one<Fold::sum>(total, static_cast<Cell>(v[i]));
}

/// A fold of any dtype, with totals as in Folded.
template <class C_>
struct AnyFold : FoldEnd<C_> {
  using C = C_;
  using End = FoldEnd<C>;
  using Cell = typename End::Cell;
  using Acc = Cell;

  DType dtype;

  explicit AnyFold(const FoldArgs& args) : End(args), dtype(args.x.dtype) {}
  __device__ Acc start() const { return this->identity(); }
  __device__ Cell cell(Acc acc) const { return acc; }
  __device__ void values(const void* x, const int64_t (&index)[kUnroll], C (&v)[kUnroll]) const {
    if (this->map != Map::nonzero) return load_several(x, dtype, index, v);
    double wide[kUnroll];  // in f64, every non-zero element, NaN included, differs from zero
    load_several(x, dtype, index, wide);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = C(wide[u] != 0);
  }
  /// In order. Plain sums, the most frequent, do without a test per element.
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t, int64_t) const {
    if (this->fold == Fold::sum && this->map == Map::none) return add_in_order(acc, v);
    C rest[N];
#pragma unroll
    for (int i = 0; i < N; ++i) rest[i] = v[i];
#pragma unroll 1
    for (int n = N; n > 0; --n) {
      take_one(acc, rest[0]);
#pragma unroll
      for (int i = 0; i + 1 < N; ++i) rest[i] = rest[i + 1];
    }
  }

 private:
  __device__ void take_one(Acc& acc, C v) const {
    if constexpr (!std::is_integral_v<C>) {
      if (this->map == Map::power) return this->combine(acc, power(v, static_cast<C>(this->parameter)));
    }
    this->combine(acc, formula::mapped(this->map, v));
  }
};

/// The sum of elements of type T, one by one: to the bit that of AnyFold.
template <class T>
struct OneByOne : FoldEnd<Accumulate<T>> {
  using Element = T;
  using C = Accumulate<T>;
  using End = FoldEnd<C>;
  using Cell = typename End::Cell;
  using Acc = Cell;

  using End::End;
  __device__ Acc start() const { return 0; }
  __device__ Cell cell(Acc acc) const { return acc; }
  __device__ void values(const void* x, const int64_t (&index)[kUnroll], C (&v)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = cast<C, T>(static_cast<const T*>(x)[index[u]]);
  }
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t, int64_t) const {
    add_in_order(acc, v);
  }
};

void fold(const FoldArgs& args, const Stream& stream) {
  const Axes axes(args.x.layout, args.out.layout, false);
  if (axes.outputs == 0) return;
  // Truth values are counted and compared as integers, except if a norm needs a floating count.
  const DType compute = args.map == Map::nonzero && !is_floating(args.out.dtype) ? kI64 : args.x.dtype;
  const Route way = route(axes);
  if (way != Route::general && args.map == Map::nonzero && compute == kI64 &&
      (args.fold == Fold::sum || args.fold == Fold::min))
    return reduce_nonzero(args, axes, way, stream);
  const bool fits =
      has_rows(args.x.dtype) && is_floating(compute) == is_floating(args.x.dtype) && args.map != Map::power;
  if (way != Route::general && fits) {
    switch (args.fold) {
      case Fold::sum:
        return reduce_sum(args, axes, way, stream);
      case Fold::prod:
        return reduce_prod(args, axes, way, stream);
      case Fold::max:
        return reduce_max(args, axes, way, stream);
      case Fold::min:
        return reduce_min(args, axes, way, stream);
    }
  }
  if (fits && args.fold == Fold::sum && args.map == Map::none && axes.reduced.rank == 1)
    return visit_rows(args.x.dtype, [&]<class T>(Type<T>) { reduce_any(OneByOne<T>(args), axes, args.x, stream); });
  visit_compute(compute, [&]<class C>(Type<C>) { reduce_any(AnyFold<C>(args), axes, args.x, stream); });
}

}  // namespace

const ReduceKernels& reduce_kernels() {
  static constexpr ReduceKernels kKernels{fold, moments, range, extremum, scan};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
