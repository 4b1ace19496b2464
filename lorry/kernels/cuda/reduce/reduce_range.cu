// The smallest and the largest element in one pass over x. A NaN among them makes both NaN.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {
namespace {

template <class C>
struct RangeEnd {
  struct Cell {
    C smallest, largest;
  };

  void *smallest, *largest;
  DType dtype;

  void addresses(auto& visit) const { visit(smallest, largest); }

  explicit RangeEnd(const RangeArgs& args)
      : smallest(args.smallest.data), largest(args.largest.data), dtype(args.x.dtype) {}

  __device__ Cell identity() const { return {fold_identity<C>(Fold::min), fold_identity<C>(Fold::max)}; }
  __device__ void combine(Cell& into, const Cell& from) const {
    into.smallest = fold_one<Fold::min>(into.smallest, from.smallest);
    into.largest = fold_one<Fold::max>(into.largest, from.largest);
  }
  __device__ void finish(int64_t offset, const Cell& cell) const {
    store_as<C>(smallest, dtype, offset, cell.smallest);
    store_as<C>(largest, dtype, offset, cell.largest);
  }
};

/// T is the stored type; the compute type if the stored type is known at run time only.
template <class T_>
struct Range : RangeEnd<Accumulate<T_>> {
  using T = T_;
  using C = Accumulate<T>;
  using End = RangeEnd<C>;
  using Cell = typename End::Cell;
  using Acc = Cell;
  static constexpr int kColumns = std::min(4, kRun<T>), kDeep = 0;  // per thread

  using End::End;
  __device__ Acc start() const { return this->identity(); }
  __device__ Cell cell(const Acc& acc) const { return acc; }
  __device__ C value(T stored) const { return cast<C, T>(stored); }
  __device__ void values(const void* x, const int64_t (&index)[kUnroll], C (&v)[kUnroll]) const {
    load_several(x, this->dtype, index, v);
  }
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t, int64_t) const {
#pragma unroll
    for (int i = 0; i < N; ++i) this->combine(acc, {v[i], v[i]});
  }
};

}  // namespace

void range(const RangeArgs& args, const Stream& stream) {
  const Axes axes(args.x.layout, args.smallest.layout, false);
  if (axes.outputs == 0) return;
  const Route way = route(axes);
  if (way != Route::general && has_rows(args.x.dtype))
    return visit_rows(args.x.dtype, [&]<class T>(Type<T>) { reduce(Range<T>(args), axes, way, args.x.data, stream); });
  visit_compute(args.x.dtype, [&]<class C>(Type<C>) { reduce_any(Range<C>(args), axes, args.x, stream); });
}

}  // namespace lorry::kernels::cuda
