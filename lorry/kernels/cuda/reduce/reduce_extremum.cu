// The largest or smallest element and its position. Ties: the lowest position wins, for any combination order of
// threads and parts.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {
namespace {

template <class C>
struct ExtremumEnd {
  struct Cell {
    C value;
    int64_t index;  // negative: no element yet
  };

  void *values, *indices;
  DType dtype;
  bool largest;

  void addresses(auto& visit) const { visit(values, indices); }

  explicit ExtremumEnd(const ExtremumArgs& args)
      : values(args.values.data), indices(args.indices.data), dtype(args.x.dtype), largest(args.largest) {}

  __device__ Cell identity() const { return {C(0), -1}; }
  __device__ bool beats(C v, const Cell& cell) const {
    if (cell.index < 0) return true;
    if (cell.value != cell.value) return false;
    return v != v || (largest ? v > cell.value : v < cell.value);
  }
  __device__ void combine(Cell& into, const Cell& from) const {
    if (from.index < 0) return;
    const bool equal = from.value == into.value || (from.value != from.value && into.value != into.value);
    if (beats(from.value, into) || (equal && from.index < into.index)) into = from;
  }
  __device__ void finish(int64_t offset, const Cell& cell) const {
    static_cast<int64_t*>(indices)[offset] = cell.index;
    if (values != nullptr) store_as<C>(values, dtype, offset, cell.value);
  }
};

/// T is the stored type; the compute type if the stored type is known at run time only.
template <class T_>
struct Extremum : ExtremumEnd<Accumulate<T_>> {
  using T = T_;
  using C = Accumulate<T>;
  using End = ExtremumEnd<C>;
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
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t position, int64_t step) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (this->beats(v[i], acc)) acc = {v[i], position + i * step};
  }
};

}  // namespace

void extremum(const ExtremumArgs& args, const Stream& stream) {
  const Axes axes(args.x.layout, args.indices.layout, true);
  if (axes.outputs == 0) return;
  const Route way = route(axes);
  if (way != Route::general && has_rows(args.x.dtype)) {
    return visit_rows(args.x.dtype,
                      [&]<class T>(Type<T>) { reduce(Extremum<T>(args), axes, way, args.x.data, stream); });
  }
  visit_compute(args.x.dtype, [&]<class C>(Type<C>) { reduce_any(Extremum<C>(args), axes, args.x, stream); });
}

}  // namespace lorry::kernels::cuda
