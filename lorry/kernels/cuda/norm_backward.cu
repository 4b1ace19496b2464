// The gradients of layer_norm and rms_norm. One reading of the gradient and of x gives all three: a block takes rows in turn, writes
// grad_x, and adds its columns' share of grad_weight and grad_bias to sums in shared memory, which no other thread touches. A
// block leaves its sums in scratch memory; a second kernel adds the blocks' in order, in f64. How many blocks there are follows
// from the shape alone, and so does every order of summation.
//
// 3 accesses an element, and 2 * 4 * blocks * n bytes of sums, written and read. Rows of up to 16,384 elements (8,192 of f64) are held in
// registers; longer ones are read twice and keep their sums in scratch memory.

#include "lorry/kernels/cuda/norm_backward.h"

#include "lorry/kernels/cuda/rows.h"
#include "lorry/kernels/cuda/scratch.h"

namespace lorry::kernels::cuda {
namespace {

/// Blocks of 1,024 threads that fill an H200, on which the blocks are counted; and the most rows that an f32 sum runs over.
constexpr int kBlocks = 132, kRowsASum = 256, kLongBlock = 1024;

template <class T>
struct BackwardRows {
  using C = Accumulate<T>;
  T* grad_x;                   ///< null: not wanted
  C *weight_sums, *bias_sums;  ///< [blocks, n]; null: not wanted
  const T *grad, *x, *weight;
  const C *mean, *rstd;
  int64_t rows, n;
  double one_nth;
};

/// grad_x from the gradient of the normal row, h = grad * weight (Ba, Kiros, Hinton 2016): h without its components along the
/// constant row (`mean`; 0 unless centred) and along the normal row (`along`), over the deviation.
template <class C>
__device__ __forceinline__ C element(C h, C normal, C mean, C along, C rstd) {
  return rstd * std::fma(-normal, along, h - mean);
}

/// 16 bytes of sums: a thread's, at a place that is its own in each plane of a block's shared memory.
template <class C>
struct alignas(16) Quad {
  C at[16 / sizeof(C)];
};

/// kRuns runs of N elements a lane; N > 1 needs every row and the weight on 16 bytes.
template <class T, int N, int kRuns>
__global__ __launch_bounds__(kRuns* N < kUsual<T> * kRun<T> ? kTeamBlock : kMaxBlock) void norm_backward_held(BackwardRows<T> a, int lanes) {
  using C = Accumulate<T>;
  constexpr int kValues = kRuns * N, kQuad = 16 / sizeof(C), kPlanes = (kValues + kQuad - 1) / kQuad;
  extern __shared__ uint4 shared[];
  __shared__ C slots[2][2 * kWarp];
  const Team team(lanes);
  const int teams = blockDim.x / lanes, n = static_cast<int>(a.n), runs = n / N;
  Quad<C>* const mine = reinterpret_cast<Quad<C>*>(shared) + threadIdx.x;
  const int weight_plane = 0, bias_plane = a.weight_sums ? kPlanes : 0, planes = bias_plane + (a.bias_sums ? kPlanes : 0);
  for (int p = 0; p < planes; ++p) mine[p * blockDim.x] = {};

  int turn = 0;
  for (int64_t first = 0; first < a.rows; first += int64_t{gridDim.x} * teams, turn ^= 1) {
    const int64_t row = first + team.row;
    const bool live = row < a.rows;
    C g[kValues], normal[kValues];
    const auto read = [&](const T* from, C(&to)[kValues]) {
#pragma unroll
      for (int k = 0; k < kRuns; ++k) {
        const int j = team.lane + k * lanes;
        if constexpr (N == 1) {
          to[k] = live && j < runs ? static_cast<C>(from[j]) : C(0);
        } else {
          uint4 raw = {};
          if (live && j < runs) raw = load16<true>(from + j * N);
          C(&run)[N] = reinterpret_cast<C(&)[N]>(to[k * N]);
          unpack<T>(raw, run);
        }
      }
    };
    read(a.grad + row * a.n, g);
    read(a.x + row * a.n, normal);
    const C mean = live && a.mean ? a.mean[row] : C(0), rstd = live ? a.rstd[row] : C(0);
#pragma unroll
    for (int v = 0; v < kValues; ++v) normal[v] = (normal[v] - mean) * rstd;

    if (a.weight_sums) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        Quad<C> sum = mine[(weight_plane + p) * blockDim.x];
#pragma unroll
        for (int e = 0; e < kQuad; ++e)
          if (p * kQuad + e < kValues) sum.at[e] = std::fma(g[p * kQuad + e], normal[p * kQuad + e], sum.at[e]);
        mine[(weight_plane + p) * blockDim.x] = sum;
      }
    }
    if (a.bias_sums) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        Quad<C> sum = mine[(bias_plane + p) * blockDim.x];
#pragma unroll
        for (int e = 0; e < kQuad; ++e)
          if (p * kQuad + e < kValues) sum.at[e] += g[p * kQuad + e];
        mine[(bias_plane + p) * blockDim.x] = sum;
      }
    }
    if (!a.grad_x) continue;

    // From here on g is the gradient of the normal row.
    C sums[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int j = team.lane + k * lanes;
      if (a.weight && j < runs) {
        C w[N];
        if constexpr (N == 1)
          w[0] = static_cast<C>(a.weight[j]);
        else
          unpack<T>(load16<false>(a.weight + j * N), w);
#pragma unroll
        for (int e = 0; e < N; ++e) g[k * N + e] *= w[e];
      }
#pragma unroll
      for (int e = 0; e < N; ++e) {
        sums[0] += g[k * N + e];
        sums[1] = std::fma(g[k * N + e], normal[k * N + e], sums[1]);
      }
    }
    team.sum(sums, slots[turn]);
    const C constant = a.mean ? static_cast<C>(sums[0] * a.one_nth) : C(0), along = static_cast<C>(sums[1] * a.one_nth);
    T* const to = a.grad_x + row * a.n;
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int j = team.lane + k * lanes;
      if (!live || j >= runs) break;
      C result[N];
#pragma unroll
      for (int e = 0; e < N; ++e) result[e] = element(g[k * N + e], normal[k * N + e], constant, along, rstd);
      if constexpr (N == 1)
        to[j] = T(result[0]);
      else
        store16(to + j * N, pack<T>(result));
    }
  }

  if (teams > 1) __syncthreads();
  if (threadIdx.x >= lanes) return;
  // The first team adds up the block's teams, in order.
  const auto leave = [&](C* sums, int plane) {
    if (!sums) return;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      Quad<C> sum = mine[(plane + p) * blockDim.x];
#pragma unroll 1
      for (int t = 1; t < teams; ++t) {
        const Quad<C> other = mine[(plane + p) * blockDim.x + t * lanes];
#pragma unroll
        for (int e = 0; e < kQuad; ++e) sum.at[e] += other.at[e];
      }
#pragma unroll
      for (int e = 0; e < kQuad; ++e) {
        const int v = p * kQuad + e, j = team.lane + v / N * lanes;
        if (v < kValues && j < runs) sums[blockIdx.x * a.n + j * N + v % N] = sum.at[e];
      }
    }
  };
  leave(a.weight_sums, weight_plane);
  leave(a.bias_sums, bias_plane);
}

/// A block takes rows of any length in turn; each thread adds to its own columns of the block's sums.
template <class T>
__global__ __launch_bounds__(kLongBlock) void norm_backward_long(BackwardRows<T> a) {
  using C = Accumulate<T>;
  __shared__ C slots[2][2 * kWarp];
  const Team team(blockDim.x);
  C* const weight_sums = a.weight_sums ? a.weight_sums + blockIdx.x * a.n : nullptr;
  C* const bias_sums = a.bias_sums ? a.bias_sums + blockIdx.x * a.n : nullptr;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
    const T *grad = a.grad + row * a.n, *x = a.x + row * a.n;
    const C mean = a.mean ? a.mean[row] : C(0), rstd = a.rstd[row];
    C constant = 0, along = 0;
    if (a.grad_x) {
      C sums[2] = {0, 0};
#pragma unroll 4
      for (int64_t i = threadIdx.x; i < a.n; i += kLongBlock) {
        const C h = static_cast<C>(grad[i]) * (a.weight ? static_cast<C>(a.weight[i]) : C(1));
        sums[0] += h;
        sums[1] = std::fma(h, (static_cast<C>(x[i]) - mean) * rstd, sums[1]);
      }
      team.sum(sums, slots[turn]);
      constant = a.mean ? static_cast<C>(sums[0] * a.one_nth) : C(0);
      along = static_cast<C>(sums[1] * a.one_nth);
    }
    const bool begins = row == blockIdx.x;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kLongBlock) {
      const C g = static_cast<C>(grad[i]), normal = (static_cast<C>(x[i]) - mean) * rstd;
      if (weight_sums) weight_sums[i] = std::fma(g, normal, begins ? C(0) : weight_sums[i]);
      if (bias_sums) bias_sums[i] = g + (begins ? C(0) : bias_sums[i]);
      if (a.grad_x) a.grad_x[row * a.n + i] = T(element(g * (a.weight ? static_cast<C>(a.weight[i]) : C(1)), normal, constant, along, rstd));
    }
  }
}

/// Adds the blocks' sums in f64: 32 columns a block of 32 x 32 threads, of which each row takes every 32nd summand.
template <class T>
__global__ __launch_bounds__(kMaxBlock) void add_blocks(T* out, const Accumulate<T>* sums, int64_t blocks, int64_t n) {
  __shared__ double parts[kWarp][kWarp + 1];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  double total = 0;
  if (column < n) {
#pragma unroll 4
    for (int64_t b = threadIdx.y; b < blocks; b += kWarp) total += sums[b * n + column];
  }
  parts[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  // Turned around, a column lies in one warp.
  total = parts[threadIdx.x][threadIdx.y];
  for (int step = kWarp / 2; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  const int64_t to = int64_t{blockIdx.x} * kWarp + threadIdx.y;
  if (threadIdx.x == 0 && to < n) out[to] = cast<T, double>(total);
}

template <class T>
void launch_backward(BackwardRows<T> a, const NormBackwardArgs& args, Stream stream) {
  using C = Accumulate<T>;
  const bool whole = !is_cut(args.grad, a.n) && aligned16(a.x) && aligned16(a.grad_x) && aligned16(a.weight);
  const RowPlan plan = plan_rows(a.n, whole ? kRun<T> : 1, false, kUsual<T> * (whole ? 1 : kRun<T>));
  constexpr int kValues = kUsual<T> * kRun<T>;
  const bool held = plan.runs * (whole ? kRun<T> : 1) <= kValues;
  const int block = held ? plan.block() : kLongBlock, teams = held ? plan.teams() : 1;
  const int64_t turns = (a.rows + teams - 1) / teams;
  const int64_t blocks = std::min(turns, std::max<int64_t>(kBlocks * kMaxBlock / block, (turns + kRowsASum - 1) / kRowsASum));

  const int sums = (args.grad_weight.data != nullptr) + (args.grad_bias.data != nullptr);
  const Scratch scratch(sums * blocks * a.n * int64_t{sizeof(C)}, stream);
  a.weight_sums = args.grad_weight.data ? scratch.as<C>() : nullptr;
  a.bias_sums = args.grad_bias.data ? scratch.as<C>() + (sums - 1) * blocks * a.n : nullptr;

  if (blocks > 0) {
    const auto run = [&]<int N, int kRuns>() {
      constexpr auto kKernel = norm_backward_held<T, N, kRuns>;
      constexpr size_t kPlanes = (kRuns * N * sizeof(C) + 15) / 16, kMostShared = 2 * kPlanes * 16 * kMaxBlock;
      if constexpr (kMostShared > (48 << 10)) allow_shared_once<kKernel>(stream.device.index, kMostShared);
      lorry::cuda::launch(stream, {static_cast<unsigned>(blocks), static_cast<unsigned>(block), sums * kPlanes * 16 * block}, kKernel, a, plan.lanes);
    };
    if (!held)
      lorry::cuda::launch(stream, {static_cast<unsigned>(blocks), kLongBlock}, norm_backward_long<T>, a);
    else if (!whole)
      plan.runs <= 4 ? run.template operator()<1, 4>() : run.template operator()<1, kValues>();
    else
      with_runs<kUsual<T>>(
          plan.runs, [&]<int kRuns>() { run.template operator()<kRun<T>, kRuns>(); }, [] {});
  }
  const dim3 columns(static_cast<unsigned>((a.n + kWarp - 1) / kWarp));
  const auto add = [&](const Array& out, const C* from) {
    if (out.data) lorry::cuda::launch(stream, {columns, dim3(kWarp, kWarp)}, add_blocks<T>, out.as<T>(), from, blocks, a.n);
  };
  add(args.grad_weight, a.weight_sums);
  add(args.grad_bias, a.bias_sums);
}

}  // namespace

void layer_norm_backward(const NormBackwardArgs& args, const Stream& stream) {
  const int64_t rows = args.x.size(0), n = args.x.size(1);
  if (n == 0 || !(args.grad_x.data || args.grad_weight.data || args.grad_bias.data)) return;
  visit_floating(args.x.dtype, "layer_norm_backward", [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    launch_backward<T>({args.grad_x.as<T>(), nullptr, nullptr, args.grad.as<T>(), args.x.as<T>(), args.weight.as<T>(), args.mean.as<C>(), args.rstd.as<C>(),
                        rows, n, 1.0 / static_cast<double>(n)},
                       args, stream);
  });
}

}  // namespace lorry::kernels::cuda
