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

  using Bits = BitsOf<C>;

  void *values, *indices;
  DType dtype;
  Bits flips;

  void addresses(auto& visit) const { visit(values, indices); }

  explicit ExtremumEnd(const ExtremumArgs& args)
      : values(args.values.data),
        indices(args.indices.data),
        dtype(args.x.dtype),
        flips(args.largest            ? Bits(0)
              : std::is_integral_v<C> ? ~Bits(0)
                                      : std::bit_cast<Bits>(C(-0.0))) {}

  /// Reverses the order of values if the smallest is wanted, so that all else looks for the largest; its own inverse.
  __device__ C flipped(C v) const { return std::bit_cast<C>(std::bit_cast<Bits>(v) ^ flips); }
  /// A NaN is above every number.
  __device__ static bool above(C a, C b) { return !(a <= b) & (b == b); }

  __device__ Cell identity() const { return {C(0), -1}; }
  __device__ void combine(Cell& into, const Cell& from) const {
    if (from.index < 0) return;
    const bool equal = !above(from.value, into.value) && !above(into.value, from.value);
    if (into.index < 0 || (equal ? from.index < into.index : above(from.value, into.value))) into = from;
  }
  __device__ void finish(int64_t offset, const Cell& cell) const {
    static_cast<int64_t*>(indices)[offset] = cell.index;
    if (values != nullptr) store_as<C>(values, dtype, offset, flipped(cell.value));
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
  __device__ C value(T stored) const { return this->flipped(cast<C, T>(stored)); }
  __device__ void values(const void* x, const int64_t (&index)[kUnroll], C (&v)[kUnroll]) const {
    load_several(x, this->dtype, index, v);
#pragma unroll
    for (C& one : v) one = this->flipped(one);
  }
  /// The best of these, whose place is a small number, then of it and the best before. Without branches: hardly ever do
  /// all threads of a warp keep what they have.
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t position, int64_t step) const {
    C best = v[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < N; ++i) {
      const bool wins = End::above(v[i], best);
      best = wins ? v[i] : best;
      at = wins ? i : at;
    }
    const bool wins = (acc.index < 0) | End::above(best, acc.value);
    acc.value = wins ? best : acc.value;
    acc.index = wins ? position + at * step : acc.index;
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
