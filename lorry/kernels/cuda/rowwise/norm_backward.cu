// The gradients of layer_norm and rms_norm. The gradient and x are read once for all results. The teams of a block
// process rows in turn, write grad_x, and add their share of grad_weight, grad_bias and the sums of grad_x to column
// sums in shared memory; each sum belongs to one thread. A block stores its sums in scratch memory; a second kernel
// adds the sums of all blocks in order, in f64. The number of blocks and every order of summation depend on the shape
// only.
//
// 3 accesses per element (4 with an addend), and 4 * blocks * n bytes of each kind of sums, written and read. Rows of
// up to 16,384 elements (8,192 for f64) are held in registers; longer ones are read twice and keep their sums in
// scratch memory.

#include "lorry/kernels/cuda/rowwise/norm_backward.h"

#include <utility>

#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/rowwise/rows.h"

namespace lorry::kernels::cuda {
namespace {

/// The number of blocks of 1,024 threads that fill an H200, and the maximum number of rows summed in f32.
constexpr int kBlocks = 132, kRowsASum = 256, kLongBlock = 1024;
/// Threads of a block of several teams: many, because every block stores sums. A lane of a team of several warps has 8
/// values.
constexpr int kTogether = 512, kShort = 8;

template <class T>
struct BackwardRows {
  using C = Accumulate<T>;
  T* grad_x;                                    ///< null: not needed
  C *weight_sums, *bias_sums, *sums_of_grad_x;  ///< [blocks, n]; null: not needed
  const T *grad, *x, *weight, *addend;          ///< weight, addend: null if absent
  const C *mean, *rstd;
  int64_t rows, n;
  double one_nth;

  void addresses(auto& visit) const {
    visit(grad_x, weight_sums, bias_sums, sums_of_grad_x, grad, x, weight, addend, mean, rstd);
  }
};

/// grad_x from h = grad * weight, the gradient of the normalised row (Ba, Kiros, Hinton 2016): h minus its components
/// along the constant row (0 unless centred) and along the normalised row, divided by the deviation.
template <class C>
struct Projection {
  C rstd, constant, along;

  /// sums: those of h and of h * normal.
  __device__ Projection(const C (&sums)[2], C rstd, bool centred, double one_nth)
      : rstd(rstd),
        constant(centred ? -rstd * (sums[0] * static_cast<C>(one_nth)) : C(0)),
        along(-rstd * (sums[1] * static_cast<C>(one_nth))) {}
  __device__ C operator()(C h, C normal) const { return std::fma(h, rstd, std::fma(normal, along, constant)); }
};

/// The sum of a result and its addend, which the operator `add` would give: the result is rounded first.
template <class T, class C = Accumulate<T>>
__device__ __forceinline__ C plus(C result, C addend) {
  return static_cast<C>(T(result)) + addend;
}

/// 16 bytes of a thread's sums. Each plane of a block's shared memory has such a place for every thread.
template <class C>
struct alignas(16) Quad {
  C at[16 / sizeof(C)];
};

/// Sums over one of the teams of a block, several whole warps; the other teams do not wait. slots: 2 * 32 values that
/// the sums before these did not use.
template <class C>
__device__ __forceinline__ void sum_over_warps(C (&sums)[2], int team, int lanes, C* slots) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
#pragma unroll
    for (int s = 0; s < 2; ++s) sums[s] += __shfl_xor_sync(0xffffffffu, sums[s], step);
  const int warps = lanes / kWarp, first = team * warps;
  if (threadIdx.x % kWarp == 0) {
    slots[threadIdx.x / kWarp] = sums[0];
    slots[kWarp + threadIdx.x / kWarp] = sums[1];
  }
  asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "r"(lanes) : "memory");
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    sums[s] = slots[s * kWarp + first];
    for (int w = 1; w < warps; ++w) sums[s] += slots[s * kWarp + first + w];
  }
}

/// A lane has kRuns runs of N elements. N > 1 requires that every row and the weight are aligned to 16 bytes.
// Long: its rows stay in registers from the first sum to the last store.
template <class T, int N, int kRuns>
__global__ __launch_bounds__(kRuns* N < kUsual<T> * kRun<T>
                                 ? kTogether
                                 : kMaxBlock) void norm_backward_held(BackwardRows<T> a, int lanes) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  constexpr int kValues = kRuns * N, kQuad = 16 / sizeof(C), kPlanes = (kValues + kQuad - 1) / kQuad;
  extern __shared__ uint4 shared[];
  __shared__ C slots[2][2 * kWarp];
  const int teams = blockDim.x / lanes, n = static_cast<int>(a.n), runs = n / N;
  const Team team(lanes, teams);
  Quad<C>* const mine = reinterpret_cast<Quad<C>*>(shared) + threadIdx.x;
  const int weight_plane = 0, bias_plane = a.weight_sums ? kPlanes : 0,
            x_plane = bias_plane + (a.bias_sums ? kPlanes : 0), planes = x_plane + (a.sums_of_grad_x ? kPlanes : 0);
  for (int p = 0; p < planes; ++p) mine[p * blockDim.x] = {};

  // Loads the next row while the current one is processed, if there are enough registers.
  constexpr bool kAhead = kValues * sizeof(C) <= 32;
  using Raw = std::conditional_t<N == 1, T, uint4>;
  Raw raw_grad[kRuns], raw_x[kRuns];
  C raw_mean, raw_rstd;
  const auto read = [&](int64_t row) {
    const bool live = row < a.rows;
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int j = team.lane + k * lanes;
      raw_grad[k] = raw_x[k] = Raw{};
      if (!live || j >= runs) continue;
      if constexpr (N == 1) {
        raw_grad[k] = a.grad[row * a.n + j];
        raw_x[k] = a.x[row * a.n + j];
      } else {
        raw_grad[k] = load16<true>(a.grad + row * a.n + j * N);
        raw_x[k] = load16<true>(a.x + row * a.n + j * N);
      }
    }
    raw_mean = live && a.mean ? a.mean[row] : C(0);
    raw_rstd = live ? a.rstd[row] : C(0);
  };
  const auto widen = [&](const Raw(&from)[kRuns], C(&to)[kValues]) {
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      if constexpr (N == 1)
        to[k] = static_cast<C>(from[k]);
      else
        unpack<T>(from[k], reinterpret_cast<C(&)[N]>(to[k * N]));
    }
  };

  int turn = 0;
  // Neighbouring rows belong to different blocks, so that all blocks have as many.
  const int team_index = static_cast<int>(threadIdx.x) / lanes;
  const int64_t begin = int64_t{team_index} * gridDim.x + blockIdx.x;
  if (kAhead) read(begin);
  for (int64_t first = 0; first < a.rows; first += int64_t{gridDim.x} * teams, turn ^= 1) {
    const int64_t row = first + begin;
    const bool live = row < a.rows;
    C g[kValues], normal[kValues];
    if (!kAhead) read(row);
    widen(raw_grad, g);
    widen(raw_x, normal);
    const C mean = raw_mean, rstd = raw_rstd;
    const auto addend_of = [&](int j) -> Raw {
      if (!live || j >= runs) return {};
      if constexpr (N == 1)
        return a.addend[row * a.n + j];
      else
        return load16<true>(a.addend + row * a.n + j * N);
    };
    Raw raw_addend[kRuns];
    if (kAhead && a.addend) {
#pragma unroll
      for (int k = 0; k < kRuns; ++k) raw_addend[k] = addend_of(team.lane + k * lanes);
    }
    if (kAhead) read(row + int64_t{gridDim.x} * teams);
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

    // From here on, g is the gradient of the normalised row.
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
    if (teams > 1 && lanes > kWarp)
      sum_over_warps(sums, team_index, lanes, slots[turn]);
    else
      team.sum(sums, slots[turn]);
    const Projection<C> project(sums, rstd, a.mean != nullptr, a.one_nth);
    T* const to = a.grad_x + row * a.n;
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int j = team.lane + k * lanes;
      if (!live || j >= runs) break;
      C(&result)[N] = reinterpret_cast<C(&)[N]>(g[k * N]);
      C others[N];
#pragma unroll
      for (int e = 0; e < N; ++e) result[e] = project(result[e], normal[k * N + e]);
      if (a.addend) {
        const Raw raw = kAhead ? raw_addend[k] : addend_of(j);
        if constexpr (N == 1)
          others[0] = static_cast<C>(raw);
        else
          unpack<T>(raw, others);
#pragma unroll
        for (int e = 0; e < N; ++e) result[e] = plus<T>(result[e], others[e]);
      }
      if constexpr (N == 1)
        to[j] = T(result[0]);
      else
        store16(to + j * N, pack<T>(result));
    }
    if (a.sums_of_grad_x && live) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        Quad<C> sum = mine[(x_plane + p) * blockDim.x];
#pragma unroll
        for (int e = 0; e < kQuad; ++e)
          if (p * kQuad + e < kValues) sum.at[e] += static_cast<C>(T(g[p * kQuad + e]));
        mine[(x_plane + p) * blockDim.x] = sum;
      }
    }
  }

  if (teams > 1) __syncthreads();
  if (threadIdx.x >= lanes) return;
  // The first team adds the sums of all teams of the block, in order.
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
      if constexpr (N % kQuad == 0) {
        const int j = team.lane + p * kQuad / N * lanes;
        if (j < runs) *reinterpret_cast<Quad<C>*>(sums + blockIdx.x * a.n + j * N + p * kQuad % N) = sum;
      } else {
#pragma unroll
        for (int e = 0; e < kQuad; ++e) {
          const int v = p * kQuad + e, j = team.lane + v / N * lanes;
          if (v < kValues && j < runs) sums[blockIdx.x * a.n + j * N + v % N] = sum.at[e];
        }
      }
    }
  };
  leave(a.weight_sums, weight_plane);
  leave(a.bias_sums, bias_plane);
  leave(a.sums_of_grad_x, x_plane);
}

/// A block processes rows of any length in turn; each thread adds to its own columns of the block's sums.
template <class T>
__global__ __launch_bounds__(kLongBlock, 1) void norm_backward_long(BackwardRows<T> a) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  __shared__ C slots[2][2 * kWarp];
  const Team team(blockDim.x);
  C* const weight_sums = a.weight_sums ? a.weight_sums + blockIdx.x * a.n : nullptr;
  C* const bias_sums = a.bias_sums ? a.bias_sums + blockIdx.x * a.n : nullptr;
  C* const sums_of_grad_x = a.sums_of_grad_x ? a.sums_of_grad_x + blockIdx.x * a.n : nullptr;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
    const T *grad = a.grad + row * a.n, *x = a.x + row * a.n;
    const C mean = a.mean ? a.mean[row] : C(0), rstd = a.rstd[row];
    C sums[2] = {0, 0};
    if (a.grad_x) {
#pragma unroll 4
      for (int64_t i = threadIdx.x; i < a.n; i += kLongBlock) {
        const C h = static_cast<C>(grad[i]) * (a.weight ? static_cast<C>(a.weight[i]) : C(1));
        sums[0] += h;
        sums[1] = std::fma(h, (static_cast<C>(x[i]) - mean) * rstd, sums[1]);
      }
      team.sum(sums, slots[turn]);
    }
    const Projection<C> project(sums, rstd, a.mean != nullptr, a.one_nth);
    const bool begins = row == blockIdx.x;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kLongBlock) {
      const C g = static_cast<C>(grad[i]), normal = (static_cast<C>(x[i]) - mean) * rstd;
      if (weight_sums) weight_sums[i] = std::fma(g, normal, begins ? C(0) : weight_sums[i]);
      if (bias_sums) bias_sums[i] = g + (begins ? C(0) : bias_sums[i]);
      if (!a.grad_x) continue;
      C result = project(g * (a.weight ? static_cast<C>(a.weight[i]) : C(1)), normal);
      if (a.addend) result = plus<T>(result, static_cast<C>(a.addend[row * a.n + i]));
      a.grad_x[row * a.n + i] = T(result);
      if (sums_of_grad_x) sums_of_grad_x[i] = static_cast<C>(T(result)) + (begins ? C(0) : sums_of_grad_x[i]);
    }
  }
}

/// Where sums over all rows go, each [n].
template <class T>
struct Totals {
  T* at[3] = {};
  int count = 0;

  void add(const Array& x) {
    if (x.data) at[count++] = x.as<T>();
  }
  void addresses(auto& visit) const { visit(at[0], at[1], at[2]); }
};

/// Adds the blocks' sums in f64. A block has kAddColumns columns; each of kAddLanes lanes adds every kAddLanes-th
/// summand. blockIdx.y selects one of the totals; their sums are stored as [gridDim.y, blocks, n].
constexpr int kAddColumns = 8, kAddLanes = 32;
template <class T>
__global__ __launch_bounds__(kAddColumns* kAddLanes) void add_blocks(Totals<T> totals, const Accumulate<T>* sums,
                                                                     int64_t blocks, int64_t n) {
  lorry::cuda::begin_programmatic();
  constexpr int kWarps = kAddColumns * kAddLanes / kWarp;
  __shared__ double parts[kWarps][kAddColumns];
  const int in_block = static_cast<int>(threadIdx.x) % kAddColumns, lane = static_cast<int>(threadIdx.x) / kAddColumns;
  const int64_t column = int64_t{blockIdx.x} * kAddColumns + in_block;
  sums += blockIdx.y * blocks * n + column;
  double total = 0;
  if (column < n) {
#pragma unroll 8
    for (int64_t b = lane; b < blocks; b += kAddLanes) total += sums[b * n];
  }
  for (int step = kAddColumns; step < kWarp; step *= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  if (threadIdx.x % kWarp < kAddColumns) parts[threadIdx.x / kWarp][in_block] = total;
  __syncthreads();
  if (threadIdx.x >= kAddColumns || column >= n) return;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) total += parts[w][in_block];
  totals.at[blockIdx.y][column] = cast<T, double>(total);
}

template <class T>
void launch_backward(BackwardRows<T> a, const NormBackwardArgs& args, Stream stream) {
  using C = Accumulate<T>;
  const bool whole =
      !is_cut(args.grad, a.n) && aligned16(a.x) && aligned16(a.grad_x) && aligned16(a.weight) && aligned16(a.addend);
  RowPlan plan = plan_rows(a.n, whole ? kRun<T> : 1, false, kUsual<T> * (whole ? 1 : kRun<T>));
  if (whole && plan.lanes > kWarp && a.n <= kTogether * kShort)
    plan = {static_cast<int>((a.n + kShort * kWarp - 1) / (kShort * kWarp)) * kWarp, std::max(1, kShort / kRun<T>)};
  Totals<T> totals;
  for (const Array* total : {&args.grad_weight, &args.grad_bias, &args.sum}) totals.add(*total);
  const int sums = totals.count;
  const int64_t most = most_shared(lorry::cuda::properties(stream.device.index));
  const auto shared_bytes = [&](int values, int block) {
    return sums * ((values * sizeof(C) + 15) / 16) * 16 * static_cast<size_t>(block);
  };
  constexpr int kValues = kUsual<T> * kRun<T>;
  const int together = std::max(1, kTogether / plan.lanes);
  const bool held = plan.runs * (whole ? kRun<T> : 1) <= kValues &&
                    static_cast<int64_t>(shared_bytes(kValues, together * plan.lanes)) <= most;
  const int teams = held ? together : 1, block = held ? teams * plan.lanes : kLongBlock;
  const int64_t turns = (a.rows + teams - 1) / teams;
  const int64_t blocks =
      std::min(turns, std::max<int64_t>(kBlocks * (kMaxBlock / block), (turns + kRowsASum - 1) / kRowsASum));

  const Scratch scratch(sums * blocks * a.n * int64_t{sizeof(C)}, stream);
  C* next = scratch.as<C>();
  const auto take = [&](const Array& total) { return total.data ? std::exchange(next, next + blocks * a.n) : nullptr; };
  a.weight_sums = take(args.grad_weight);
  a.bias_sums = take(args.grad_bias);
  a.sums_of_grad_x = take(args.sum);

  if (blocks > 0) {
    const auto run = [&]<int N, int kRuns>() {
      constexpr auto kKernel = norm_backward_held<T, N, kRuns>;
      allow_shared_once<kKernel>(stream.device.index, static_cast<size_t>(most));
      lorry::cuda::launch(stream,
                          {static_cast<unsigned>(blocks), static_cast<unsigned>(block), shared_bytes(kRuns * N, block)},
                          kKernel, a, plan.lanes);
    };
    if (!held)
      lorry::cuda::launch(stream, {static_cast<unsigned>(blocks), kLongBlock}, norm_backward_long<T>, a);
    else if (!whole)
      plan.runs <= 4 ? run.template operator()<1, 4>() : run.template operator()<1, kValues>();
    else
      with_runs<kUsual<T>>(
          plan.runs, [&]<int kRuns>() { run.template operator()<kRun<T>, kRuns>(); }, [] {});
  }
  if (sums == 0) return;
  const dim3 columns(static_cast<unsigned>((a.n + kAddColumns - 1) / kAddColumns), static_cast<unsigned>(sums));
  lorry::cuda::launch(stream, {columns, kAddColumns * kAddLanes}, add_blocks<T>, totals, scratch.as<C>(), blocks, a.n);
}

}  // namespace

void layer_norm_backward(const NormBackwardArgs& args, const Stream& stream) {
  const int64_t rows = args.x.size(0), n = args.x.size(1);
  if (n == 0 || !(args.grad_x.data || args.grad_weight.data || args.grad_bias.data)) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    launch_backward<T>(
        {args.grad_x.as<T>(), nullptr, nullptr, nullptr, args.grad.as<T>(), args.x.as<T>(), args.weight.as<T>(),
         args.addend.as<T>(), args.mean.as<C>(), args.rstd.as<C>(), rows, n, 1.0 / static_cast<double>(n)},
        args, stream);
  });
}

}  // namespace lorry::kernels::cuda
