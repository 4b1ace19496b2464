// Rotary positions. Every element is read once and written once, with accesses of 16 bytes if half-heads, strides and
// addresses allow it, else of the largest power of two that they allow. A thread rotates a run of coordinates together
// with the partner run in the other half of the head, for up to kHeads heads of one position. These heads share their
// cosines and sines, which for 16-bit elements take twice the elements' own bytes, and their loads are in flight
// together (32 registers). Neighbouring threads take neighbouring runs, then neighbouring heads.

#include "lorry/kernels/attention.h"

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/formula/rotary.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/strided_indexer.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kHeads = 4;

/// Division of numbers up to `most`.
struct Division {
  int64_t divisor;
  Divider narrow;
  bool fits;

  Division(int64_t divisor, int64_t most)
      : divisor(divisor), narrow(most <= INT32_MAX ? Divider(divisor) : Divider()), fits(most <= INT32_MAX) {}
  __device__ __forceinline__ int64_t operator()(int64_t n) const {
    return fits ? int64_t{narrow(static_cast<uint32_t>(n))} : n / divisor;
  }
};

template <class T>
struct Problem {
  using C = Accumulate<T>;
  T* out;
  const T* x;
  const C *cos, *sin;
  int64_t rows, positions;               ///< a row is all heads of one position
  int64_t stride_n, stride_t, stride_h;  ///< of x
  int64_t all, heads, half;
  int64_t items, groups;  ///< per row; an item is a run of the heads group, group + groups, ...
  Division by_positions, by_runs;
  int lanes, teams;  ///< threads per row, rows per block
  C sign;

  void addresses(auto& visit) const { visit(out, x, cos, sin); }
};

/// kN elements of the tables of cosines or sines.
template <int kN, class C>
__device__ __forceinline__ void load_table(const C* from, C (&to)[kN]) {
  constexpr int kStep = kN < kRun<C> ? kN : kRun<C>;
#pragma unroll
  for (int i = 0; i < kN; i += kStep) {
    const Run<C, kStep> run = load_run<C, kStep>(from + i);
#pragma unroll
    for (int e = 0; e < kStep; ++e) to[i + e] = run.at[e];
  }
}

/// kN elements in registers; 16-bit elements are packed two per word if kN is even.
template <class T, int kN>
struct Elements {
  using C = Accumulate<T>;
  static constexpr int kPair = kHalf<T> && kN % 2 == 0 ? 2 : 1;
  using Word = std::conditional_t<kPair == 2, uint32_t, T>;
  Run<Word, kN / kPair> words;

  __device__ __forceinline__ void load(const T* from) {
    words = load_run<Word, kN / kPair>(reinterpret_cast<const Word*>(from));
  }
  __device__ __forceinline__ void store(T* to) const { store_run(reinterpret_cast<Word*>(to), words); }
  /// Rotates these elements and those of the other half.
  __device__ __forceinline__ void turn(Elements& other, const C (&cos)[kN], const C (&sin)[kN], C sign) {
#pragma unroll
    for (int w = 0; w < kN / kPair; ++w) {
      Word &a = words.at[w], &b = other.words.at[w];
      if constexpr (kPair == 2) {
        float2 x = widen_pair<T>(a), y = widen_pair<T>(b);
        formula::Rotary()(x.x, y.x, cos[2 * w], sin[2 * w] * sign);
        formula::Rotary()(x.y, y.y, cos[2 * w + 1], sin[2 * w + 1] * sign);
        a = narrow_pair<T>(x.x, x.y);
        b = narrow_pair<T>(y.x, y.y);
      } else {
        C x = static_cast<C>(a), y = static_cast<C>(b);
        formula::Rotary()(x, y, cos[w], sin[w] * sign);
        a = T(x);
        b = T(y);
      }
    }
  }
};

template <class T, int kN>
__global__ __launch_bounds__(kBlock) void rotary_kernel(const __grid_constant__ Problem<T> p) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  const int team = static_cast<int>(threadIdx.x) / p.lanes, lane = static_cast<int>(threadIdx.x) - team * p.lanes;
  if (team >= p.teams) return;
  for (int64_t row = int64_t{blockIdx.x} * p.teams + team; row < p.rows; row += int64_t{gridDim.x} * p.teams) {
    const int64_t n = p.by_positions(row), position = row - n * p.positions;
    const T* const x = p.x + n * p.stride_n + position * p.stride_t;
    T* const out = p.out + row * p.all * 2 * p.half;
    for (int64_t item = lane; item < p.items; item += p.lanes) {
      const int64_t group = p.by_runs(item), at = (item - group * p.by_runs.divisor) * kN;
      Elements<T, kN> first[kHeads], second[kHeads];
#pragma unroll
      for (int k = 0; k < kHeads; ++k) {
        const int64_t head = group + k * p.groups;
        if (head >= p.all) continue;
        first[k].load(x + head * p.stride_h + at);
        second[k].load(x + head * p.stride_h + p.half + at);
      }
      C cos[kN], sin[kN];
      load_table<kN>(p.cos + position * p.half + at, cos);
      load_table<kN>(p.sin + position * p.half + at, sin);
#pragma unroll
      for (int k = 0; k < kHeads; ++k) {
        const int64_t head = group + k * p.groups;
        if (head >= p.all) continue;
        if (head < p.heads) first[k].turn(second[k], cos, sin, p.sign);
        first[k].store(out + head * 2 * p.half + at);
        second[k].store(out + head * 2 * p.half + p.half + at);
      }
    }
  }
}

/// Whether every run of kN elements can be accessed at once.
template <class T, int kN>
bool moves_in(const RotaryArgs& args) {
  using C = Accumulate<T>;
  const auto on = [](const Array& a, size_t bytes) { return reinterpret_cast<uintptr_t>(a.data) % bytes == 0; };
  constexpr size_t kTable = std::min<size_t>(16, kN * sizeof(C));
  bool whole = args.x.size(3) / 2 % kN == 0 && on(args.x, kN * sizeof(T)) && on(args.out, kN * sizeof(T)) &&
               on(args.cos, kTable) && on(args.sin, kTable);
  for (int d = 0; d < 3; ++d) whole &= args.x.size(d) == 1 || args.x.stride(d) % kN == 0;
  return whole;
}

template <class T, int kN>
void rotary_as(const RotaryArgs& args, const Stream& stream) {
  if constexpr (kN > 1)
    if (!moves_in<T, kN>(args)) return rotary_as<T, kN / 2>(args, stream);
  using C = Accumulate<T>;
  const Array& x = args.x;
  const int64_t positions = x.size(1), rows = x.size(0) * positions, all = x.size(2), half = x.size(3) / 2;
  const int64_t groups = (all + kHeads - 1) / kHeads, items = groups * (half / kN);
  const int lanes = static_cast<int>(std::min<int64_t>(items, kBlock)), teams = kBlock / lanes;
  const Problem<T> p{.out = args.out.as<T>(),
                     .x = x.as<const T>(),
                     .cos = args.cos.as<const C>(),
                     .sin = args.sin.as<const C>(),
                     .rows = rows,
                     .positions = positions,
                     .stride_n = x.stride(0),
                     .stride_t = x.stride(1),
                     .stride_h = x.stride(2),
                     .all = all,
                     .heads = args.heads,
                     .half = half,
                     .items = items,
                     .groups = groups,
                     .by_positions = Division(positions, rows),
                     .by_runs = Division(half / kN, items),
                     .lanes = lanes,
                     .teams = teams,
                     .sign = args.inverse ? C(-1) : C(1)};
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((rows + teams - 1) / teams, INT32_MAX));
  lorry::cuda::launch(stream, {blocks, kBlock}, rotary_kernel<T, kN>, p);
}

void rotary(const RotaryArgs& args, const Stream& stream) {
  if (args.out.numel() == 0) return;
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) { rotary_as<T, kRun<T>>(args, stream); });
}

}  // namespace

const RotaryKernels& rotary_kernels() {
  static constexpr RotaryKernels kKernels{rotary};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
