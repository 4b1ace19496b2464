#pragma once

// Contiguous rows in kernels: which thread reads which part of a row, with 16-byte accesses for any start of the row,
// and sums over a row whose result all its threads get, or its first lane.
//
// A row is processed by a team of threads: 1 to 32 neighbours in a warp (a power of two; then a block has several
// teams), or a whole block. The row is split at multiples of 16 bytes: the *body* is whole runs, which lanes take in
// turn (run j belongs to lane j % lanes); before and after it are fewer elements than a run, of which a lane takes at
// most one. The order of sums depends only on the row's length and start. Where a row must have the same bits wherever
// it lies, the body begins with the row (FixedCut), and the order depends on the length alone.

// Kernels compiled at run time include this file too, but only its device part.

#ifndef __CUDACC_RTC__
#include <algorithm>
#include <optional>

#include "lorry/kernels/common/array.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#endif

#include <bit>
#include <cmath>
#include <limits>

#include "lorry/kernels/cuda/common/fast_math.h"

namespace lorry::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kTeamBlock = 128;  ///< threads per block for teams within warps
constexpr int kMaxBlock = 1024;

template <class C>
inline constexpr C kInfinity = std::numeric_limits<C>::infinity();
template <class C>
inline constexpr C kNaN = std::numeric_limits<C>::quiet_NaN();

/// The usual number of runs per thread: 16 values, 8 for f64. Twice that if a block of 1,024 threads would otherwise be
/// too small and there are enough registers.
template <class T>
inline constexpr int kUsual = 16 / kRun<T> < 4 ? 16 / kRun<T> : 4;
template <class T>
inline constexpr int kMost = kHalf<T> ? kUsual<T> : 2 * kUsual<T>;
/// The largest block of a kernel with kRuns runs per lane: fewer than the usual number occur in teams within warps
/// only.
template <class T, int kRuns>
inline constexpr int kBlockOf = kRuns < kUsual<T> ? kTeamBlock : kMaxBlock;

#ifndef __CUDACC_RTC__

/// How rows are distributed among threads. Chosen on the host.
struct RowPlan {
  int lanes = 0;  ///< threads per row
  int runs = 0;   ///< maximum runs per lane

  int block() const { return lanes > kWarp ? lanes : kTeamBlock; }
  int teams() const { return block() / lanes; }
  unsigned grid(int64_t rows) const { return static_cast<unsigned>((rows + teams() - 1) / teams()); }
};

/// The teams for rows of n elements, with kRun elements per run. A lane gets one run until a warp is full, then up to
/// `usual` runs until a block is full, then as many as needed. cut: rows may start or end inside a run; the elements
/// before and after the body, at most 2 * (kRun - 1), then need a lane each.
inline RowPlan plan_rows(int64_t n, int kRun, bool cut, int usual) {
  const int64_t body = n / kRun;
  if (body <= kWarp)
    return {static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>({body, cut ? 2 * kRun : 1, 1})))),
            1};
  if (body <= kWarp * usual) return {kWarp, body <= kWarp * 2 ? 2 : static_cast<int>((body + kWarp - 1) / kWarp)};
  const int64_t turns = (body + kMaxBlock * usual - 1) / (kMaxBlock * usual);
  const int64_t lanes = (body + usual * turns - 1) / (usual * turns);
  const int block = static_cast<int>((lanes + kWarp - 1) / kWarp * kWarp);
  return {block, static_cast<int>((body + block - 1) / block)};
}

/// Calls held.operator()<kRuns>() with the first of 1, 2, 4, ... kMost that is at least `runs`; if there is none,
/// longer().
template <int kMost, int kRuns = 1, class Held, class Longer>
void with_runs(int runs, const Held& held, const Longer& longer) {
  if (runs <= kRuns)
    held.template operator()<kRuns>();
  else if constexpr (kRuns < kMost)
    with_runs<kMost, 2 * kRuns>(runs, held, longer);
  else
    longer();
}

/// Whether some of the rows of n elements does not start or end on a 16-byte boundary.
inline bool is_cut(const Array& x, int64_t n) {
  return !aligned16(x.data) || n * size_of(x.dtype) % 16 != 0 ||
         (x.layout.rank == 2 && x.stride(0) * size_of(x.dtype) % 16 != 0 && x.size(0) > 1);
}

/// The dynamic shared memory of a block that has a multiprocessor to itself. The rest is for the kernel's variables.
inline int64_t most_shared(const lorry::cuda::Properties& gpu) { return gpu.shared_bytes_per_block - 2048; }

#endif  // __CUDACC_RTC__

#ifdef __CUDACC__

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }  // for a number and a NaN: the number
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

// fast_exp is used for terms of a sum and for 16-bit results.
__device__ __forceinline__ double fast_exp(double x) { return exp(x); }

/// exp with the precision of T.
template <class T>
__device__ __forceinline__ Accumulate<T> exp_for(Accumulate<T> x) {
  if constexpr (kHalf<T>)
    return fast_exp(x);
  else
    return exp(x);
}

/// The threads that share a row. All threads of a block must take part in every sum, even if their row is beyond the
/// last.
struct Team {
  int lanes, lane;
  int64_t row;
  int first_warp = 0;  ///< the team's first warp in its block

  __device__ explicit Team(int lanes)
      : lanes(lanes),
        lane(lanes > kWarp ? threadIdx.x : threadIdx.x & (lanes - 1)),
        row(lanes > kWarp ? int64_t{blockIdx.x} : int64_t{blockIdx.x} * (blockDim.x / lanes) + threadIdx.x / lanes) {}

  /// If a block has several teams, a team is any whole number of warps, or a power of two of lanes.
  __device__ Team(int lanes, int teams)
      : lanes(lanes),
        lane(threadIdx.x % lanes),
        row(int64_t{blockIdx.x} * teams + threadIdx.x / lanes),
        first_warp((threadIdx.x - lane) / kWarp) {}

  /// Replaces each of K values by its fold over the team; `none` is the neutral element. `slots` is shared memory of K
  /// * 32 values. The block may reuse it for the next fold but one.
  template <int K, class C, class F>
  __device__ __forceinline__ void fold(C (&values)[K], C none, C* slots, F f) const {
    fold_warps(values, slots, f);
    if (lanes > kWarp) fold_slots<kWarp>(values, none, slots, f);
  }
  /// The same, but only the team's first lane gets the folds, with fewer instructions. kMostWarps: the most warps of a
  /// team, a power of two.
  template <int kMostWarps, int K, class C, class F>
  __device__ __forceinline__ void fold_to_first(C (&values)[K], C none, C* slots, F f) const {
    fold_warps(values, slots, f);
    if (lanes > kWarp && lane < kWarp) fold_slots<kMostWarps>(values, none, slots, f);
  }
  template <int K, class C>
  __device__ __forceinline__ void sum(C (&values)[K], C* slots) const {
    fold(values, C(0), slots, [](C a, C b) { return a + b; });
  }
  template <class C>
  __device__ __forceinline__ C sum(C value, C* slots) const {
    C values[1] = {value};
    sum(values, slots);
    return values[0];
  }
  template <class C>
  __device__ __forceinline__ C max(C value, C* slots) const {
    C values[1] = {value};
    fold(values, -kInfinity<C>, slots, [](C a, C b) { return larger(a, b); });
    return values[0];
  }

  /// The value of lane 0, where all warps of the team have the same values.
  template <class C>
  __device__ __forceinline__ C first(C value) const {
    return __shfl_sync(0xffffffffu, value, lanes < kWarp ? static_cast<int>(threadIdx.x % kWarp) - lane : 0);
  }

  /// Replaces each of K values by its fold over `count` neighbouring lanes, a power of two.
  template <int K, class C, class F>
  static __device__ __forceinline__ void fold_lanes(C (&values)[K], int count, F f) {
    if (count == kWarp) {
#pragma unroll
      for (int step = kWarp / 2; step > 0; step /= 2)
        for (int k = 0; k < K; ++k) values[k] = f(values[k], __shfl_xor_sync(0xffffffffu, values[k], step));
      return;
    }
    for (int step = count / 2; step > 0; step /= 2)
      for (int k = 0; k < K; ++k) values[k] = f(values[k], __shfl_xor_sync(0xffffffffu, values[k], step));
  }

 private:
  /// Folds over each warp; a team of several shares the folds.
  template <int K, class C, class F>
  __device__ __forceinline__ void fold_warps(C (&values)[K], C* slots, F f) const {
    fold_lanes(values, min(lanes, kWarp), f);
    if (lanes <= kWarp) return;
    if (threadIdx.x % kWarp == 0)
      for (int k = 0; k < K; ++k) slots[k * kWarp + threadIdx.x / kWarp] = values[k];
    __syncthreads();
  }
  /// Folds the values that the team's warps, at most kMostWarps, have left in `slots`.
  template <int kMostWarps, int K, class C, class F>
  __device__ __forceinline__ void fold_slots(C (&values)[K], C none, const C* slots, F f) const {
    const int n = threadIdx.x % kMostWarps;
    for (int k = 0; k < K; ++k) values[k] = n < lanes / kWarp ? slots[k * kWarp + first_warp + n] : none;
    fold_lanes(values, kMostWarps, f);
  }
};

/// Loads 16 bytes. kOnce: they are not read again soon and need not displace other data in the cache.
template <bool kOnce>
__device__ __forceinline__ uint4 load16(const void* from) {
  return kOnce ? __ldcs(static_cast<const uint4*>(from)) : *static_cast<const uint4*>(from);
}
/// In assembler, because the compiler splits a plain assignment into words.
__device__ __forceinline__ void store16(void* to, uint4 bytes) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(bytes.x),
               "r"(bytes.y), "r"(bytes.z), "r"(bytes.w)
               : "memory");
}

template <class T>
__device__ __forceinline__ void unpack(uint4 raw, Accumulate<T> (&to)[kRun<T>]) {
  if constexpr (kHalf<T>) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 pair = widen_pair<T>(words[w]);
      to[2 * w] = pair.x, to[2 * w + 1] = pair.y;
    }
  } else {
    const auto run = std::bit_cast<Run<T, kRun<T>>>(raw);
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) to[e] = run.at[e];
  }
}

template <class T>
__device__ __forceinline__ uint4 pack(const Accumulate<T> (&from)[kRun<T>]) {
  if constexpr (kHalf<T>) {
    return {narrow_pair<T>(from[0], from[1]), narrow_pair<T>(from[2], from[3]), narrow_pair<T>(from[4], from[5]),
            narrow_pair<T>(from[6], from[7])};
  } else {
    Run<T, kRun<T>> run;
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) run.at[e] = T(from[e]);
    return std::bit_cast<uint4>(run);
  }
}

/// Loads or stores a run of elements at any address: with one access if it is aligned.
template <class T>
__device__ __forceinline__ void load_elements(const T* from, bool aligned, Accumulate<T> (&to)[kRun<T>]) {
  if (aligned) {
    unpack<T>(load16<false>(from), to);
  } else {
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) to[e] = static_cast<Accumulate<T>>(from[e]);
  }
}
template <class T>
__device__ __forceinline__ void store_elements(T* to, bool aligned, const Accumulate<T> (&from)[kRun<T>]) {
  if (aligned) {
    store16(to, pack<T>(from));
  } else {
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) to[e] = T(from[e]);
  }
}

__device__ __forceinline__ bool on_16(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

/// The position of a row's body, and the element outside it that belongs to this lane (-1: none). Index is int if n is
/// below 2^31.
template <class T, class Index>
struct Cut {
  Index body;  ///< runs of the body
  int head;    ///< elements before the body
  Index edge;

  __device__ Cut(const T* row, Index n, const Team& team) {
    constexpr int kN = kRun<T>;
    const int to_boundary = static_cast<int>((0 - reinterpret_cast<uintptr_t>(row) / sizeof(T)) % kN);
    head = n < to_boundary ? static_cast<int>(n) : to_boundary;
    body = (n - head) / kN;
    const int tail = static_cast<int>(n - head - body * kN);
    edge = team.lane < head ? team.lane : team.lane < head + tail ? head + body * kN + (team.lane - head) : Index(-1);
  }
  /// The first element of run j.
  __device__ Index at(Index j) const { return head + j * kRun<T>; }
  /// Run j.
  template <bool kOnce>
  __device__ __forceinline__ uint4 load(const T* row, Index j) const {
    return load16<kOnce>(row + at(j));
  }
};

/// A cut whose body begins with the row. The runs of a row that is not aligned are read element by element.
template <class T, class Index>
struct FixedCut : Cut<T, Index> {
  bool aligned;

  __device__ FixedCut(const T* row, Index n, const Team& team) : Cut<T, Index>(nullptr, n, team), aligned(on_16(row)) {}
  template <bool kOnce>
  __device__ __forceinline__ uint4 load(const T* row, Index j) const {
    if (aligned) return load16<kOnce>(row + this->at(j));
    Run<T, kRun<T>> run;
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) run.at[e] = row[this->at(j) + e];
    return std::bit_cast<uint4>(run);
  }
};

/// A row in the registers of its team: kRuns runs per lane, and the lane's element outside the body. Elements beyond
/// the row are `pad`.
template <class T, int kRuns>
struct HeldRow {
  using C = Accumulate<T>;
  static constexpr int kN = kRun<T>;
  C body[kRuns][kN];
  C edge;

  __device__ __forceinline__ void load(const T* row, const Cut<T, int>& cut, const Team& team, T pad,
                                       bool aligned = true) {
    edge = static_cast<C>(cut.edge >= 0 ? row[cut.edge] : pad);
    if (aligned) {
      C pads[kN];
#pragma unroll
      for (int e = 0; e < kN; ++e) pads[e] = static_cast<C>(pad);
      uint4 raw[kRuns];
#pragma unroll
      for (int k = 0; k < kRuns; ++k) {
        const int j = team.lane + k * team.lanes;
        raw[k] = pack<T>(pads);
        if (j < cut.body) raw[k] = load16<true>(row + cut.at(j));
      }
#pragma unroll
      for (int k = 0; k < kRuns; ++k) unpack<T>(raw[k], body[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kRuns; ++k) {
        const int j = team.lane + k * team.lanes;
#pragma unroll
        for (int e = 0; e < kN; ++e) body[k][e] = static_cast<C>(j < cut.body ? row[cut.at(j) + e] : pad);
      }
    }
  }
  __device__ __forceinline__ void store(T* row, const Cut<T, int>& cut, const Team& team) const {
    const bool aligned = on_16(row + cut.head);
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int j = team.lane + k * team.lanes;
      if (j < cut.body) store_elements(row + cut.at(j), aligned, body[k]);
    }
    if (cut.edge >= 0) row[cut.edge] = T(edge);
  }
  /// Calls f(value) for every element, padding included.
  template <class F>
  __device__ __forceinline__ void each(F f) {
#pragma unroll
    for (int k = 0; k < kRuns; ++k)
#pragma unroll
      for (int e = 0; e < kN; ++e) f(body[k][e]);
    f(edge);
  }
};

constexpr int kFlight = 4;

struct Ready {
  __device__ void operator()(int) const {}
};

/// Reads the body of a row of any length, kFlight runs at a time: f(raw, j) gets runs j, j + lanes, ... Runs beyond the
/// body are filled with `pad`. wait(turn) returns when the runs of a turn can be read.
template <bool kOnce, template <class, class> class AnyCut, class T, class Index, class F, class Wait = Ready>
__device__ __forceinline__ void each_turn(const T* row, const AnyCut<T, Index>& cut, const Team& team, T pad, F f,
                                          Wait wait = {}) {
  using C = Accumulate<T>;
  constexpr int kN = kRun<T>;
  C pads[kN];
#pragma unroll
  for (int e = 0; e < kN; ++e) pads[e] = static_cast<C>(pad);
  const uint4 nothing = pack<T>(pads);
  int turn = 0;
  for (Index j = team.lane; j < cut.body; j += kFlight * team.lanes) {
    wait(turn++);
    uint4 raw[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      raw[k] = nothing;
      if (j + k * team.lanes < cut.body) raw[k] = cut.template load<kOnce>(row, j + k * team.lanes);
    }
    f(raw, j);
  }
}

/// The maximum of the elements so far and their sum of exp(x - max), computed in one pass (Milakov, Gimelshein 2018). A
/// NaN appears only in the sum.
template <class C>
struct LogSum {
  C max = -kInfinity<C>, sum = 0;

  template <int K, int N>
  __device__ __forceinline__ void add(const C (&x)[K][N]) {
    C top = max;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int e = 0; e < N; ++e) top = larger(top, x[k][e]);
    rise(top);
    const C shift = base(top);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      C part = 0;
#pragma unroll
      for (int e = 0; e < N; ++e) part += fast_exp(x[k][e] - shift);
      sum += part;
    }
  }
  /// Combines the values of the whole team; every lane gets the result. slots: shared memory, 2 * 32 values.
  __device__ __forceinline__ void combine(const Team& team, C* slots) {
    rise(team.max(max, slots));
    sum = team.sum(sum, slots + kWarp);
  }
  /// Returns false if the row has no softmax: it contains +infinity, or nothing above -infinity.
  __device__ bool finite() const { return isfinite(max); }

 private:
  static __device__ __forceinline__ C base(C top) { return top == -kInfinity<C> ? C(0) : top; }
  __device__ __forceinline__ void rise(C top) {
    sum *= fast_exp(max - base(top));
    max = top;
  }
};

#endif  // __CUDACC__

}  // namespace lorry::kernels::cuda
