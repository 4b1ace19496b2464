// Products whose rows have the same bits in every batch (LinearRowsArgs), by fused multiply-adds.
//
// The order of the sums. A warp computes an element. k is divided into runs of 16 bytes, which the 32 lanes take in
// turn: run r belongs to lane r % 32. A lane adds the products of its runs one after the other, from zero, each by a
// fused multiply-add. Then lanes l and l + 16 are added, l and l + 8, and so on. So the order follows from k and the
// dtype.
//
// What moves. A warp reads kColumns rows of weight for kRows rows of x. Weights come from memory once for kRows rows of
// x; these are read by all warps of a block and come from the first-level cache. Each lane has 4 runs of every row in
// flight for one row of x, one for several.

#include "lorry/kernels/cuda/matmul/linear_rows_fma.h"

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

template <class S>
struct FmaRows {
  S* out;
  const S *x, *weight, *bias;
  int64_t m, n, k;
  int64_t out_row, x_row, x_column, weight_row, weight_column, bias_step;

  void addresses(auto& visit) const { visit(out, x, weight, bias); }
};

__device__ __forceinline__ float multiply_add(float a, float b, float sum) { return __fmaf_rn(a, b, sum); }
__device__ __forceinline__ double multiply_add(double a, double b, double sum) { return __fma_rn(a, b, sum); }

/// A run from element `at` of a row on; zeros from k on.
template <bool kRuns, class S>
__device__ __forceinline__ Run<S, kRun<S>> load_part(const S* row, int64_t column, int64_t at, int64_t k) {
  if constexpr (kRuns) {
    return load_run<S, kRun<S>>(row + at);
  } else {
    Run<S, kRun<S>> run;
#pragma unroll
    for (int e = 0; e < kRun<S>; ++e) run.at[e] = at + e < k ? row[(at + e) * column] : S(0.0f);
    return run;
  }
}

/// Grid: groups of kWarps * kColumns rows of weight, and groups of kRows rows of x, which blocks take in turn.
template <class S, int kRows, int kColumns, bool kRuns>
__global__ void __launch_bounds__(kThreads) multiply_rows_fma(FmaRows<S> p) {
  lorry::cuda::begin_programmatic();
  using T = Accumulate<S>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t j = (int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * kColumns;
  if (j >= p.n) return;
  for (int64_t i = int64_t{blockIdx.y} * kRows; i < p.m; i += int64_t{gridDim.y} * kRows) {
    const S *x[kRows], *weight[kColumns];
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = p.x + min(i + r, p.m - 1) * p.x_row;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) weight[c] = p.weight + min(j + c, p.n - 1) * p.weight_row;
    T sums[kRows][kColumns] = {};
#pragma unroll(kRows == 1 ? 4 : 1)
    for (int64_t at = lane * kRun<S>; at < p.k; at += 32 * kRun<S>) {
      Run<S, kRun<S>> of_weight[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) of_weight[c] = load_part<kRuns>(weight[c], p.weight_column, at, p.k);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Run<S, kRun<S>> of_x = load_part<kRuns>(x[r], p.x_column, at, p.k);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
#pragma unroll
          for (int e = 0; e < kRun<S>; ++e)
            sums[r][c] = multiply_add(static_cast<T>(of_x.at[e]), static_cast<T>(of_weight[c].at[e]), sums[r][c]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        T sum = sums[r][c];
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum = sum + __shfl_xor_sync(~0u, sum, step);
        if (lane != r * kColumns + c || i + r >= p.m || j + c >= p.n) continue;
        if (p.bias != nullptr) sum = sum + static_cast<T>(p.bias[(j + c) * p.bias_step]);
        p.out[(i + r) * p.out_row + j + c] = static_cast<S>(sum);
      }
  }
}

template <class S>
bool in_runs(const void* data, int64_t row, int64_t column, int64_t k) {
  return aligned16(data) && column == 1 && row % kRun<S> == 0 && k % kRun<S> == 0;
}

template <class S, int kRows, int kColumns>
void launch(const FmaRows<S>& p, Stream stream) {
  const bool runs =
      in_runs<S>(p.x, p.x_row, p.x_column, p.k) && in_runs<S>(p.weight, p.weight_row, p.weight_column, p.k);
  const dim3 grid(static_cast<unsigned>((p.n + kWarps * kColumns - 1) / (kWarps * kColumns)),
                  static_cast<unsigned>(std::min<int64_t>(65535, (p.m + kRows - 1) / kRows)));
  lorry::cuda::launch(stream, {grid, kThreads},
                      runs ? multiply_rows_fma<S, kRows, kColumns, true> : multiply_rows_fma<S, kRows, kColumns, false>,
                      p);
}

}  // namespace

void linear_rows_fma(const LinearRowsArgs& args, Stream stream) {
  visit_floating(args.out.dtype, [&]<class S>(Type<S>) {
    const FmaRows<S> p{.out = args.out.as<S>(),
                       .x = args.x.as<S>(),
                       .weight = args.weight.as<S>(),
                       .bias = args.bias.as<S>(),
                       .m = args.out.size(0),
                       .n = args.out.size(1),
                       .k = args.x.size(1),
                       .out_row = args.out.stride(0),
                       .x_row = args.x.stride(0),
                       .x_column = args.x.stride(1),
                       .weight_row = args.weight.stride(0),
                       .weight_column = args.weight.stride(1),
                       .bias_step = args.bias.data == nullptr ? 0 : args.bias.stride(0)};
    if (p.m == 1) {
      launch<S, 1, 1>(p, stream);
    } else if (p.m <= 4) {
      launch<S, 4, 2>(p, stream);
    } else {
      launch<S, 8, 4>(p, stream);
    }
  });
}

}  // namespace lorry::kernels::cuda
