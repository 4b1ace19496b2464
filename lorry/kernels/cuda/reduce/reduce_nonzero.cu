// Counts of non-zero elements, and whether any or all are: of every dtype, with whole loads. All of them are non-zero
// if the count of zeros is 0.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {
namespace {

/// T: a floating type, or for integers and bool the unsigned type of their size.
template <class T_>
struct Counted : FoldEnd<int64_t> {
  using T = T_;
  using C = int32_t;
  using End = FoldEnd<int64_t>;
  using Acc = int64_t;
  static constexpr int kColumns = kRun<T>, kDeep = 0;

  bool zeros;  ///< whether zeros are counted, for a minimum

  explicit Counted(const FoldArgs& args) : End(args), zeros(args.fold == Fold::min) {}
  __device__ Acc start() const { return 0; }
  __device__ Cell identity() const { return 0; }
  __device__ Cell cell(Acc acc) const { return acc; }
  __device__ C value(T stored) const { return (cast<bool, T>(stored) != 0) != zeros; }
  template <int N>
  __device__ __forceinline__ void take(Acc& acc, const C (&v)[N], int64_t, int64_t) const {
    C count = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) count += v[i];
    acc += count;
  }
  __device__ void combine(Cell& into, Cell from) const { into += from; }
  __device__ void finish(int64_t offset, Cell count) const { End::finish(offset, zeros ? count == 0 : count); }
};

}  // namespace

void reduce_nonzero(const FoldArgs& args, const Axes& axes, Route way, Stream stream) {
  visit(args.x.dtype, [&]<class T>(Type<T>) {
    using Tested = std::conditional_t<kFloatingType<T>, T, BitsOf<T>>;
    reduce(Counted<Tested>(args), axes, way, args.x.data, stream);
  });
}

}  // namespace lorry::kernels::cuda
