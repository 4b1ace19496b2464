// Products of any dtype, layout and size without a library. A block of 256 threads computes a tile of 64 x 64 results,
// 4 x 4 per thread, from slices of a and b, 16 deep, in shared memory (8 KB, 16 KB for 64-bit types; two blocks per
// multiprocessor, one for 64-bit types). Each slice is read along the dimension of unit stride, so loads are coalesced
// for both orientations.
//
// A small out with a long k is split along k: the partial sums are stored in scratch memory and added in order. The
// split depends on the shapes only.

#include <algorithm>

#include "lorry/base/integers.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/matmul/matmul_builtin.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kSide = 16, kEach = kTile / kSide;
constexpr int64_t kMostGridZ = 65535;

/// The type of sums: integers wrap in 32 or 64 bits; 16-bit floats are summed in f32.
template <class S>
using Sum =
    std::conditional_t<std::is_integral_v<S>, std::conditional_t<sizeof(S) == 8, uint64_t, uint32_t>, Accumulate<S>>;

__device__ __forceinline__ float multiply_add(float a, float b, float sum) { return __fmaf_rn(a, b, sum); }
__device__ __forceinline__ double multiply_add(double a, double b, double sum) { return __fma_rn(a, b, sum); }
template <std::integral T>
__device__ __forceinline__ T multiply_add(T a, T b, T sum) {
  return a * b + sum;
}

/// Loads a slice of a matrix, `lines` x `depth` from (line0, depth0), to to[depth][line]; zeros beyond the matrix.
template <class S, class T>
__device__ __forceinline__ void load_slice(T (&to)[kDepth][kTile + 1], const S* from, int64_t lines, int64_t line0,
                                           int64_t line_stride, int64_t depths, int64_t depth0, int64_t depth_stride) {
  const int t = static_cast<int>(threadIdx.x);
  const bool along_lines = line_stride == 1;
  const int line = along_lines ? t % kTile : t / kDepth, depth = along_lines ? t / kTile : t % kDepth;
  const int next_line = along_lines ? 0 : kThreads / kDepth, next_depth = along_lines ? kThreads / kTile : 0;
  from += (line0 + line) * line_stride + (depth0 + depth) * depth_stride;
  const int64_t next = next_line * line_stride + next_depth * depth_stride;
#pragma unroll
  for (int i = 0; i < kTile * kDepth / kThreads; ++i, from += next) {
    const int at_line = line + i * next_line, at_depth = depth + i * next_depth;
    to[at_depth][at_line] = line0 + at_line < lines && depth0 + at_depth < depths ? static_cast<T>(*from) : T(0);
  }
}

/// The outputs and the addend of one batch entry, of type S.
template <class S>
struct Results {
  S* out;
  const S* c;
  int64_t out_row, out_column, c_row, c_column;

  __device__ __forceinline__ Results(const Problem& p, int64_t batch)
      : out(reinterpret_cast<S*>(p.data[kOut]) + p.offset(kOut, batch)),
        c(p.adds ? reinterpret_cast<const S*>(p.data[kC]) + p.offset(kC, batch) : nullptr),
        out_row(p.row[kOut]),
        out_column(p.column[kOut]),
        c_row(p.row[kC]),
        c_column(p.column[kC]) {}
  template <class T>
  __device__ __forceinline__ void store(int64_t i, int64_t j, T total, T alpha, T beta) const {
    T result = alpha * total;
    if (c != nullptr) result = result + beta * static_cast<T>(c[i * c_row + j * c_column]);
    out[i * out_row + j * out_column] = static_cast<S>(result);
  }
};

/// Grid: tiles of out, parts of k, batch entries (at most as many as a grid allows). With `partial`, sums are stored
/// there as [part][batch][n][m]; otherwise results go to out. S: the type of a and b; R: that of out.
template <class S, class R>
__global__ void __launch_bounds__(kThreads)
    multiply_tiles(Problem p, int64_t batches, int64_t tiles_down, int64_t depth_of_part, Sum<S> alpha, Sum<S> beta,
                   Sum<S>* partial) {
  lorry::cuda::begin_programmatic();
  using T = Sum<S>;
  __shared__ T a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const int x = static_cast<int>(threadIdx.x) % kSide, y = static_cast<int>(threadIdx.x) / kSide;
  const int64_t i0 = blockIdx.x % tiles_down * kTile, j0 = blockIdx.x / tiles_down * kTile;
  const int64_t first = blockIdx.y * depth_of_part, last = first + depth_of_part < p.k ? first + depth_of_part : p.k;
  for (int64_t batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    const S* const from_a = reinterpret_cast<const S*>(p.data[kA]) + p.offset(kA, batch);
    const S* const from_b = reinterpret_cast<const S*>(p.data[kB]) + p.offset(kB, batch);
    T sums[kEach][kEach] = {};
    for (int64_t k0 = first; k0 < last; k0 += kDepth) {
      load_slice(a, from_a, p.m, i0, p.row[kA], last, k0, p.column[kA]);
      load_slice(b, from_b, p.n, j0, p.column[kB], last, k0, p.row[kB]);
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < kDepth; ++k) {
        T column[kEach], row[kEach];
#pragma unroll
        for (int e = 0; e < kEach; ++e) column[e] = a[k][x + e * kSide], row[e] = b[k][y + e * kSide];
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int j = 0; j < kEach; ++j) sums[i][j] = multiply_add(column[i], row[j], sums[i][j]);
      }
      __syncthreads();
    }
    const Results<R> results(p, batch);
#pragma unroll
    for (int j = 0; j < kEach; ++j)
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int64_t at_i = i0 + x + i * kSide, at_j = j0 + y + j * kSide;
        if (at_i >= p.m || at_j >= p.n) continue;
        if (partial != nullptr) {
          partial[((blockIdx.y * batches + batch) * p.n + at_j) * p.m + at_i] = sums[i][j];
        } else {
          results.store(at_i, at_j, sums[i][j], alpha, beta);
        }
      }
  }
}

template <class S, class R>
__global__ void __launch_bounds__(kThreads)
    add_parts(Problem p, int64_t batches, int64_t parts, Sum<S> alpha, Sum<S> beta, const Sum<S>* partial) {
  lorry::cuda::begin_programmatic();
  const int64_t count = batches * p.n * p.m, step = int64_t{gridDim.x} * kThreads;
  for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < count; e += step) {
    Sum<S> total = partial[e];
    for (int64_t part = 1; part < parts; ++part) total = total + partial[part * count + e];
    Results<R>(p, e / (p.n * p.m)).store(e % p.m, e / p.m % p.n, total, alpha, beta);
  }
}

/// A factor in the type of sums; integers wrap.
template <class T>
T factor(double x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(to_whole(x));
  } else {
    return static_cast<T>(x);
  }
}

template <class S, class R = S>
void multiply(const Problem& p, Stream stream) {
  const auto alpha = factor<Sum<S>>(p.alpha), beta = factor<Sum<S>>(p.beta);
  const int64_t batches = p.batches(), tiles_down = ceil_div(p.m, kTile), tiles = tiles_down * ceil_div(p.n, kTile);
  // Splits into parts of at least 1024 until there is work for about 256 blocks.
  const int64_t most_parts = std::max<int64_t>(1, 256 / (tiles * batches));
  const int64_t depth = std::max<int64_t>(1024, ceil_div(ceil_div(p.k, most_parts), kDepth) * kDepth);
  const int64_t parts = std::max<int64_t>(1, ceil_div(p.k, depth));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts),
                  static_cast<unsigned>(std::min(batches, kMostGridZ)));
  if (parts == 1) {
    lorry::cuda::launch(stream, {grid, kThreads}, multiply_tiles<S, R>, p, batches, tiles_down, depth, alpha, beta,
                        nullptr);
    return;
  }
  const int64_t count = batches * p.n * p.m;
  const Scratch partial(parts * count * static_cast<int64_t>(sizeof(Sum<S>)), stream);
  lorry::cuda::launch(stream, {grid, kThreads}, multiply_tiles<S, R>, p, batches, tiles_down, depth, alpha, beta,
                      partial.as<Sum<S>>());
  lorry::cuda::launch(stream, {lorry::cuda::blocks_for(count, kThreads, stream.device.index), kThreads},
                      add_parts<S, R>, p, batches, parts, alpha, beta, partial.as<Sum<S>>());
}

}  // namespace

void multiply_builtin(const Problem& problem, Stream stream) {
  visit(problem.dtype, [&]<class S>(Type<S>) {
    if constexpr (!std::is_same_v<S, bool>) multiply<S>(problem, stream);
  });
}

void multiply_builtin_int8(const Problem& problem, Stream stream) { multiply<int8_t, int32_t>(problem, stream); }

}  // namespace lorry::kernels::cuda
