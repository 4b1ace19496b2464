// The family's table, and the folds that run element by element: those of narrow integers, products, powers and truth
// values.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

/// Not inlined, because it is long and rarely used.
template <class C>
__device__ __noinline__ C power(C v, C exponent) {
  return std::pow(std::abs(v), exponent);
}

/// A fold of any dtype. Products are computed in f64 throughout: a product of f32 could overflow although the result
/// does not.
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
  __device__ void take(Acc& acc, const C (&v)[1], int64_t, int64_t) const {
    if constexpr (!std::is_integral_v<C>) {
      if (this->map == Map::power) return this->combine(acc, power(v[0], static_cast<C>(this->parameter)));
    }
    this->combine(acc, formula::mapped(this->map, v[0]));
  }
};

void fold(const FoldArgs& args, const Stream& stream) {
  const Axes axes(args.x.layout, args.out.layout, false);
  if (axes.outputs == 0) return;
  // Truth values are counted and compared as integers, except if a norm needs a floating count.
  const DType compute = args.map == Map::nonzero && !is_floating(args.out.dtype) ? kI64 : args.x.dtype;
  const Route way = route(axes);
  const bool fits =
      has_rows(args.x.dtype) && is_floating(compute) == is_floating(args.x.dtype) && args.map != Map::power;
  if (way != Route::general && fits) {
    if (args.fold == Fold::sum) return reduce_sum(args, axes, way, stream);
    if (args.fold == Fold::max) return reduce_max(args, axes, way, stream);
    if (args.fold == Fold::min) return reduce_min(args, axes, way, stream);
  }
  visit_compute(compute, [&]<class C>(Type<C>) { reduce_any(AnyFold<C>(args), axes, args.x, stream); });
}

}  // namespace

const ReduceKernels& reduce_kernels() {
  static constexpr ReduceKernels kKernels{fold, moments, range, extremum, scan};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
