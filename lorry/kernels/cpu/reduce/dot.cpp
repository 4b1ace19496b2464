#include "lorry/kernels/cpu/reduce/dot.h"

#include <type_traits>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/fold_loops.h"
#include "lorry/kernels/cpu/common/load_store.h"

namespace lorry::kernels::cpu {
namespace {

template <class S>
DotTotal<S> serial(const S* a, int64_t a_stride, const S* b, int64_t b_stride, int64_t n) {
  if constexpr (!kFloatingType<S>) {
    // Only the last digits of the total are kept, so narrower sums give them too.
    using Sum = std::conditional_t<sizeof(S) == 8, uint64_t, uint32_t>;
    Sum total = 0;
    if (a_stride == 1 && b_stride == 1)
      for (int64_t i = 0; i < n; ++i) total += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
    else
      for (int64_t i = 0; i < n; ++i) total += static_cast<Sum>(a[i * a_stride]) * static_cast<Sum>(b[i * b_stride]);
    return static_cast<S>(total);
  } else {
    if (a_stride == 1 && b_stride == 1)
      if (const DotLoop loop = dot_loop(dtype_of<S>)) return loop(a, b, n);
    using C = Accumulate<S>;
    const auto read = [](C* to, const S* from, int64_t stride, int64_t length) {
      if constexpr (std::is_same_v<S, C>)
        if (stride > 1 && stride <= kMostStride) return fold_loops<C>(Fold::sum).take(to, from, stride, length);
      load(to, from, dtype_of<S>, stride, length);
    };
    const DotLoop loop = dot_loop(dtype_of<C>);
    C x[kDotRun<C>], y[kDotRun<C>];  // one run, so that totals are added in the order of the loop
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += kDotRun<C>) {
      const int64_t length = std::min(kDotRun<C>, n - begin);
      read(x, a + begin * a_stride, a_stride, length);
      read(y, b + begin * b_stride, b_stride, length);
      total += loop(x, y, length);
    }
    return total;
  }
}

}  // namespace

template <class S>
DotTotal<S> dot(const S* a, int64_t a_stride, const S* b, int64_t b_stride, int64_t n) {
  constexpr int64_t kChunk = int64_t{1} << 15;
  if (n <= kChunk) return serial(a, a_stride, b, b_stride, n);
  std::vector<DotTotal<S>> totals((n + kChunk - 1) / kChunk);
  lorry::cpu::for_each_chunk(n, kChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
    totals[chunk] = serial(a + begin * a_stride, a_stride, b + begin * b_stride, b_stride, end - begin);
  });
  DotTotal<S> total = 0;
  for (const DotTotal<S> x : totals) total = formula::fold_one<formula::Fold::sum>(total, x);
  return total;
}

#define LORRY_DOT(type) template DotTotal<type> dot(const type*, int64_t, const type*, int64_t, int64_t);
#define LORRY_WHOLE_DTYPE(name, Name, text, type, dlpack, safetensors) LORRY_DOT(type)
#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors) LORRY_DOT(type)
#include "lorry/layout/dtypes.def"
#undef LORRY_DOT

}  // namespace lorry::kernels::cpu
