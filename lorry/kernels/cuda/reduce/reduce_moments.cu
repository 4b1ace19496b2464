// Means and variances, always in f64. A thread accumulates the sum and the sum of squares of its elements' differences
// from its first element. This is accurate because that pivot is one of the elements (Chan, Golub, LeVeque 1983,
// section 3). Parts are combined with their pairwise formula, as on the CPU.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {
namespace {

struct MomentEnd {
  struct Cell {
    double mean, squares, count;
  };

  void *mean, *variance;
  DType mean_dtype, variance_dtype;
  bool root;
  double correction;

  void addresses(auto& visit) const { visit(mean, variance); }

  explicit MomentEnd(const MomentArgs& args)
      : mean(args.mean.data),
        variance(args.variance.data),
        mean_dtype(args.mean.dtype),
        variance_dtype(args.variance.dtype),
        root(args.root),
        correction(args.correction) {}

  __device__ Cell identity() const { return {0, 0, 0}; }
  __device__ void combine(Cell& into, const Cell& from) const {
    if (from.count == 0) return;
    if (into.count == 0) {
      into = from;
      return;
    }
    const double count = into.count + from.count, difference = from.mean - into.mean, share = from.count / count;
    into.mean += difference * share;
    into.squares += from.squares + difference * difference * (into.count * share);
    into.count = count;
  }
  __device__ void finish(int64_t offset, const Cell& cell) const {
    const double nan = __longlong_as_double(0x7ff8000000000000);
    if (mean != nullptr) store_as<double>(mean, mean_dtype, offset, cell.count > 0 ? cell.mean : nan);
    if (variance == nullptr) return;
    // Without elements the quotient is 0 / 0 or x / 0, as intended.
    const double v = cell.count > 0 ? cell.squares / fmax(0.0, cell.count - correction) : nan;
    store_as<double>(variance, variance_dtype, offset, root ? sqrt(v) : v);
  }
};

template <class T_>
struct Moments : MomentEnd {
  using T = T_;
  using C = Accumulate<T>;
  using End = MomentEnd;
  struct Acc {
    double pivot, sum, squares;
    int32_t count;
  };
  static constexpr int kColumns = std::min(4, kRun<T>), kDeep = 0;  // per thread

  DType dtype;

  explicit Moments(const MomentArgs& args) : MomentEnd(args), dtype(args.x.dtype) {}
  __device__ Acc start() const { return {0, 0, 0, 0}; }
  __device__ C value(T stored) const { return cast<C, T>(stored); }
  __device__ void values(const void* x, const int64_t (&index)[kUnroll], C (&v)[kUnroll]) const {
    load_several(x, dtype, index, v);
  }
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t, int64_t) const {
    if (acc.count == 0 && isfinite(v[0])) acc.pivot = v[0];
    acc.count += N;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const double distance = v[i] - acc.pivot;
      acc.sum += distance;
      acc.squares = fma(distance, distance, acc.squares);
    }
  }
  __device__ Cell cell(const Acc& acc) const {
    if (acc.count == 0) return identity();
    const double count = static_cast<double>(acc.count), shift = acc.sum / count,
                 squares = fma(-acc.sum, shift, acc.squares);
    return {acc.pivot + shift, squares < 0 ? 0 : squares, count};
  }
};

}  // namespace

void moments(const MomentArgs& args, const Stream& stream) {
  const Axes axes(args.x.layout, args.variance.data != nullptr ? args.variance.layout : args.mean.layout, false);
  if (axes.outputs == 0) return;
  const Route way = route(axes);
  const DType dtype = args.x.dtype;
  if (way == Route::general || !is_floating(dtype)) return reduce_any(Moments<double>(args), axes, args.x, stream);
  visit_floating(dtype, [&]<class T>(Type<T>) { reduce(Moments<T>(args), axes, way, args.x.data, stream); });
}

}  // namespace lorry::kernels::cuda
