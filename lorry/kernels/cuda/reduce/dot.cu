// The dot product of two vectors. A thread multiplies groups of 16 bytes and adds the products of each as a tree in the
// compute type; all else is added in f64, in a fixed order. The groups depend on the length only, so vectors with gaps
// give the bits of contiguous ones. Bytes moved: those of both vectors.

#include <algorithm>

#include "lorry/kernels/cuda/reduce/dot.h"
#include "lorry/kernels/cuda/reduce/reduce_driver.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kDotThreads = kSpread, kFlight = 4;

struct DotPlan {
  int64_t length, chunk;   // a block multiplies `chunk` elements
  int64_t a_step, b_step;  // from an element to the next

  void addresses(auto& visit) const { visit(); }
};

struct DotEnd {
  using Cell = double;

  void* out;
  DType dtype;
  double alpha;

  void addresses(auto& visit) const { visit(out); }
  __device__ Cell identity() const { return 0; }
  __device__ void combine(Cell& into, Cell from) const { into += from; }
  __device__ void finish(int64_t offset, Cell cell) const { store_as<double>(out, dtype, offset, alpha * cell); }
};

/// The sum of the products of a group, added as a tree.
template <class T>
__device__ __forceinline__ Accumulate<T> multiply_group(const Run<T, kRun<T>>& x, const Run<T, kRun<T>>& y) {
  using C = Accumulate<T>;
  C tree[kRun<T>];
#pragma unroll
  for (int e = 0; e < kRun<T>; ++e) tree[e] = static_cast<C>(x.at[e]) * static_cast<C>(y.at[e]);
#pragma unroll
  for (int half = kRun<T> / 2; half > 0; half /= 2)
#pragma unroll
    for (int e = 0; e < half; ++e) tree[e] += tree[e + half];
  return tree[0];
}

/// The group of elements from `at` on; zeros beyond the end.
template <class T>
__device__ __forceinline__ Run<T, kRun<T>> load_group(const T* from, int64_t at, int64_t end, int64_t step) {
  Run<T, kRun<T>> group;
#pragma unroll
  for (int e = 0; e < kRun<T>; ++e) group.at[e] = at + e < end ? from[(at + e) * step] : T(0);
  return group;
}

/// kAligned: both vectors can be read 16 bytes at a time.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kDotThreads)
    multiply_groups(const DotEnd policy, const T* a, const T* b, const DotPlan plan, const Parts<double> parts) {
  lorry::cuda::begin_programmatic();
  constexpr int kV = kRun<T>, kStep = kDotThreads * kV;
  const int64_t begin = blockIdx.y * plan.chunk, end = min(plan.length, begin + plan.chunk);
  int64_t at = begin + static_cast<int64_t>(threadIdx.x) * kV;
  double total = 0;
  if constexpr (kAligned) {
    for (; at + (kFlight - 1) * kStep + kV <= end; at += kFlight * kStep) {
      Run<T, kV> x[kFlight], y[kFlight];
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        x[u] = load_run<T, kV>(a + at + u * kStep);
        y[u] = load_run<T, kV>(b + at + u * kStep);
      }
#pragma unroll
      for (int u = 0; u < kFlight; ++u) total += multiply_group(x[u], y[u]);
    }
  }
#pragma unroll 1
  for (; at < end; at += kStep)
    total += multiply_group(load_group(a, at, end, plan.a_step), load_group(b, at, end, plan.b_step));
  const double cell = combine_spread(policy, total, static_cast<int>(threadIdx.x), 0, kDotThreads, 1);
  if (threadIdx.x == 0) leave(policy, parts, 1, 0, 0, cell);
  combine_parts(policy, parts, 1, 0, 1, [](int64_t) { return int64_t{0}; });
}

template <class T>
void multiply(const DotArgs& args, const Stream& stream) {
  constexpr int64_t kStep = kDotThreads * kRun<T>,
                    kLeast = kFlight * kStep;  // a part keeps every thread's loads in flight
  const auto *a = static_cast<const T*>(args.a), *b = static_cast<const T*>(args.b);
  // About as many parts as the driver makes of one output.
  const int64_t share = ceil_div(args.length, kBlocks), chunk = std::max(kLeast, ceil_div(share, kStep) * kStep),
                parts = std::max<int64_t>(1, ceil_div(args.length, chunk));
  const bool aligned = args.a_step == 1 && args.b_step == 1 && aligned16(a) && aligned16(b);
  const DotPlan plan{args.length, chunk, args.a_step, args.b_step};
  const DotEnd end{args.out, args.dtype, args.alpha};
  const auto launch = [&](const Parts<double>& cells) {
    lorry::cuda::launch(stream, {{1, static_cast<unsigned>(parts)}, kDotThreads},
                        aligned ? multiply_groups<T, true> : multiply_groups<T, false>, end, a, b, plan, cells);
  };
  if (parts == 1) return launch({nullptr, nullptr, 1});
  const Scratch cells(parts * int64_t{sizeof(double)}, stream);
  const Tickets tickets(1, stream);
  launch({cells.as<double>(), tickets.data(), static_cast<int32_t>(parts)});
}

}  // namespace

void dot(const DotArgs& args, const Stream& stream) {
  visit(args.dtype, [&]<class T>(Type<T>) {
    if constexpr (has_dot(dtype_of<T>)) multiply<T>(args, stream);
  });
}

}  // namespace lorry::kernels::cuda
