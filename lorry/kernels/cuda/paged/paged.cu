// Attention over a paged cache. Keys are read in splits of 32, by one warp each. Split s belongs to lane s % 32 of its
// query; a lane adds its splits in order with a running maximum and sum, and the 32 lanes are added in order at the
// end. So the bits of a result follow from its keys alone, whoever computes it.
//
// Who computes it is chosen by the size of the batch. Few queries: a cluster of up to 8 blocks for each head of each
// row, in which a warp has at least one lane; all write their sums to the shared memory of the first. Many: one block
// of up to 4 warps. Long batches: a block takes four rows, and if they are of one sequence reads its keys once for all
// four.
//
// Reads each key and value once (16 bytes an access where d, strides and addresses allow it) for each query head: heads
// that share them read them from the caches. A warp has 8 accesses a thread in flight, or 16 where one reads all keys
// of a split at once: then values do not wait for scores.

#include "lorry/kernels/paged.h"

#include <algorithm>
#include <type_traits>

#include "lorry/base/error.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/cluster.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/fast_math.h"
#include "lorry/kernels/cuda/common/prefetch.h"
#include "lorry/kernels/cuda/paged/rows.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kSplit = 32;  ///< keys
constexpr int kLanes = 32;  ///< sums of a query
constexpr int kTile = 4;    ///< rows that may share keys
constexpr int kInFlight = 8;
constexpr int64_t kWidest = 512;

// ---- attention ------------------------------------------------------------------------------------------------------

template <class T>
struct Problem {
  T* out;  ///< contiguous [n, heads, d]
  const T *q, *k, *v;
  int64_t q_row, q_head, cache_block, cache_row, cache_head;  ///< strides
  CachedRows rows;
  int32_t heads, group, d;  ///< group: heads of q for each of the cache
  Accumulate<T> scale;

  void addresses(auto& visit) const { visit(out, q, k, v, rows); }
};

/// How a warp reads keys: a key's coordinates are kPieces * kTeam vectors of kVector elements, read by kTeam threads.
template <class Element, int kVectorElements, int kTeamThreads, int kTeamPieces>
struct Reading {
  using T = Element;
  static constexpr int kVector = kVectorElements, kTeam = kTeamThreads, kPieces = kTeamPieces;
  static constexpr int kTeams = kWarp / kTeam, kOwn = kPieces * kVector;
  static constexpr int kAtOnce = std::clamp(kInFlight / kPieces, 1, kTeam);  ///< keys that a team has in flight
};

/// For f16 and bf16 the hardware's approximation is enough.
template <class T, class C>
__device__ __forceinline__ C weight_of(C x) {
  if constexpr (kHalf<T>)
    return fast_exp(x);
  else
    return exp(x);
}

template <class C>
__device__ __forceinline__ C warp_max(C x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmax(x, __shfl_xor_sync(kWholeWarp, x, step));
  return x;
}

/// The sum over threads that are a multiple of `first` apart, up to `last`.
template <int kFirst, int kLast, class C>
__device__ __forceinline__ C sum_over(C x) {
#pragma unroll
  for (int step = kLast / 2; step >= kFirst; step /= 2) x += __shfl_xor_sync(kWholeWarp, x, step);
  return x;
}

/// Entry i, for the i-th of kCount neighbouring threads, of the sums over these threads of kCount numbers each. At each
/// step a thread hands half of its numbers to another one.
template <int kCount, class C>
__device__ __forceinline__ C scattered_sum(C (&x)[kCount]) {
#pragma unroll
  for (int half = kCount / 2; half > 0; half /= 2) {
    const bool upper = (threadIdx.x & static_cast<unsigned>(half)) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const C kept = upper ? x[half + i] : x[i], given = upper ? x[i] : x[half + i];
      x[i] = kept + __shfl_xor_sync(kWholeWarp, given, half);
    }
  }
  return x[0];
}

template <class C>
__device__ __forceinline__ C infinity() {
  return static_cast<C>(HUGE_VAL);
}

/// What a maximum is subtracted as: 0 while there is none.
template <class C>
__device__ __forceinline__ C shift_of(C most) {
  return most == -infinity<C>() ? C(0) : most;
}

/// One warp's work on kQueries queries of one sequence and head: the sums of one lane at a time.
template <class R, int kQueries>
struct Lane {
  using T = typename R::T;
  using C = Accumulate<T>;
  using Piece = Run<T, R::kVector>;

  const Problem<T>& p;
  int32_t row, head;           ///< the first of the queries' rows; the cache's head
  int32_t position[kQueries];  ///< of the queries
  int32_t last;                ///< the largest of them
  int team, at;                ///< of this thread: its team, and its number there
  C q[kQueries][R::kOwn], sum[kQueries][R::kOwn], most[kQueries], total[kQueries];

  __device__ __forceinline__ Lane(const Problem<T>& p, int32_t row, int32_t query_head,
                                  const int32_t (&positions)[kQueries])
      : p(p),
        row(row),
        head(query_head / p.group),
        last(0),
        team(static_cast<int>(threadIdx.x) % kWarp / R::kTeam),
        at(static_cast<int>(threadIdx.x) % R::kTeam) {
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      position[i] = positions[i];
      last = max(last, positions[i]);
      const T* const from = p.q + (row + i) * p.q_row + query_head * p.q_head;
#pragma unroll
      for (int j = 0; j < R::kPieces; ++j) widen(load(from, j), q[i] + j * R::kVector);
    }
  }

  /// Piece j of a head that begins at `from`, as this thread reads it; zeros beyond d.
  __device__ __forceinline__ Piece load(const T* from, int j) const {
    const int e = (at + j * R::kTeam) * R::kVector;
    if (e < p.d) return load_run<T, R::kVector>(from + e);
    return Piece{};
  }

  static __device__ __forceinline__ void widen(const Piece& piece, C* to) {
#pragma unroll
    for (int e = 0; e < R::kVector; ++e) to[e] = static_cast<C>(piece.at[e]);
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      most[i] = -infinity<C>(), total[i] = 0;
#pragma unroll
      for (int e = 0; e < R::kOwn; ++e) sum[i][e] = 0;
    }
  }

  /// The offset of this thread's key of a split in the cache; -1 if there is none. Thread `team * kTeam + k` has the
  /// key that the team reads in turn k.
  __device__ __forceinline__ int64_t offset_of(int32_t split) const {
    const int32_t key = split * kSplit + at * R::kTeams + team;
    if (key > last) return -1;
    const int32_t number = static_cast<int32_t>(p.rows.by_block(static_cast<uint32_t>(key)));
    const int32_t block = p.rows.block(row, number, true);
    if (block < 0) return -1;
    const int64_t in_block = key - int64_t{number} * p.rows.by_block.divisor;
    return block * p.cache_block + in_block * p.cache_row + head * p.cache_head;
  }

  /// The keys or values that a team has in flight.
  struct Flight {
    Piece pieces[R::kAtOnce][R::kPieces];
  };
  /// A team reads all its keys of a split at once.
  static constexpr bool kOneFlight = R::kTeam == R::kAtOnce;

  /// Loads the team's keys or values from turn `first` on. `offset` is that of this thread's key.
  __device__ __forceinline__ void take_off(Flight& flight, const T* cache, int64_t offset, int first) const {
#pragma unroll
    for (int k = 0; k < R::kAtOnce; ++k) {
      const int64_t from = __shfl_sync(kWholeWarp, static_cast<long long>(offset), team * R::kTeam + first + k);
#pragma unroll
      for (int j = 0; j < R::kPieces; ++j) flight.pieces[k][j] = from >= 0 ? load(cache + from, j) : Piece{};
    }
  }

  /// Calls use(turn, pieces) for each of the team's keys or values. `flight`: the only one, loaded before, if there is
  /// only one.
  template <class Use>
  __device__ __forceinline__ void each_key(Flight& flight, const T* cache, int64_t offset, const Use& use) const {
#pragma unroll 1
    for (int first = 0; first < R::kTeam; first += R::kAtOnce) {
      if constexpr (!kOneFlight) take_off(flight, cache, offset, first);
#pragma unroll
      for (int k = 0; k < R::kAtOnce; ++k) use(first + k, flight.pieces[k]);
    }
  }

  /// The products of the queries and this thread's key.
  __device__ __forceinline__ void scores_of(Flight& keys, int64_t offset, C (&score)[kQueries]) const {
    constexpr bool kScattered = kOneFlight;
    C products[kScattered ? kQueries : 1][R::kTeam];
    each_key(keys, p.k, offset, [&](int turn, const Piece(&pieces)[R::kPieces]) {
      C key[R::kOwn];
#pragma unroll
      for (int j = 0; j < R::kPieces; ++j) widen(pieces[j], key + j * R::kVector);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        C product = 0;
#pragma unroll
        for (int e = 0; e < R::kOwn; ++e) product = fma(q[i][e], key[e], product);
        if constexpr (kScattered) {
          products[i][turn] = product;
        } else {
          product = sum_over<1, R::kTeam>(product);
          if (at == turn) score[i] = product;
        }
      }
    });
    if constexpr (kScattered) {
#pragma unroll
      for (int i = 0; i < kQueries; ++i) score[i] = scattered_sum(products[i]);
    }
  }

  /// Adds the values, weighted. A key that a query does not see is left out, whatever it holds.
  template <bool kAllSeen>
  __device__ __forceinline__ void add_values(Flight& values, int64_t offset, const C (&weight)[kQueries],
                                             const unsigned (&seen)[kQueries]) {
    each_key(values, p.v, offset, [&](int turn, const Piece(&pieces)[R::kPieces]) {
      C value[R::kOwn];
#pragma unroll
      for (int j = 0; j < R::kPieces; ++j) widen(pieces[j], value + j * R::kVector);
      const int source = team * R::kTeam + turn;
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        const C by = __shfl_sync(kWholeWarp, weight[i], source);
        if (kAllSeen || (seen[i] >> source & 1) != 0) {
#pragma unroll
          for (int e = 0; e < R::kOwn; ++e) sum[i][e] = fma(by, value[e], sum[i][e]);
        }
      }
    });
  }

  __device__ __forceinline__ void add(int32_t split) {
    const int64_t offset = offset_of(split);
    const int32_t key = split * kSplit + at * R::kTeams + team;
    Flight keys, values;
    if constexpr (kOneFlight) {  // values do not wait for scores
      take_off(keys, p.k, offset, 0);
      take_off(values, p.v, offset, 0);
    }
    C score[kQueries];
    scores_of(keys, offset, score);
    unsigned seen[kQueries], by_all = kWholeWarp;
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      const bool sees = offset >= 0 && key <= position[i];
      const C s = sees ? score[i] * p.scale : -infinity<C>();
      const C now = fmax(most[i], warp_max(s)), shift = shift_of(now);
      const C factor = weight_of<T>(most[i] - shift);
      score[i] = weight_of<T>(s - shift);
      most[i] = now, total[i] = total[i] * factor + score[i];
#pragma unroll
      for (int e = 0; e < R::kOwn; ++e) sum[i][e] *= factor;
      seen[i] = __ballot_sync(kWholeWarp, sees);
      by_all &= seen[i];
    }
    if (by_all == kWholeWarp)
      add_values<true>(values, offset, score, seen);
    else
      add_values<false>(values, offset, score, seen);
  }

  /// Writes maximum, total and sum of each query, d + 2 numbers.
  __device__ __forceinline__ void store(C* to) const {
#pragma unroll
    for (int i = 0; i < kQueries; ++i, to += p.d + 2) {
      const C all = sum_over<1, kWarp>(total[i]);
      if (threadIdx.x % kWarp == 0) to[0] = most[i], to[1] = all;
#pragma unroll
      for (int e = 0; e < R::kOwn; ++e) {
        const C mine = sum_over<R::kTeam, kWarp>(sum[i][e]);
        const int coordinate = (at + e / R::kVector * R::kTeam) * R::kVector + e % R::kVector;
        if (team == 0 && coordinate < p.d) to[2 + coordinate] = mine;
      }
    }
  }
};

template <class C>
__device__ __forceinline__ C* shared_numbers() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<C*>(memory);
}

/// Adds the lanes of a query and writes its result. `part` is the query's part of lane 0; those of the others follow,
/// `pitch` apart. Warp `warp` of `warps` writes some of the coordinates.
template <class T, class C>
__device__ __forceinline__ void finish(T* out, const C* part, int d, int lanes, int pitch, int warp, int warps) {
  const int thread = static_cast<int>(threadIdx.x) % kWarp;
  const C* const mine = part + thread * pitch;
  const C most = thread < lanes ? mine[0] : -infinity<C>();
  const C shift = shift_of(warp_max(most)), factor = thread < lanes ? weight_of<T>(most - shift) : C(0);
  const C total = sum_over<1, kWarp>(thread < lanes ? mine[1] * factor : C(0));
  for (int first = warp * kWarp; first < d; first += warps * kWarp) {
    const int e = first + thread;
    C sum = 0;
#pragma unroll 8
    for (int l = 0; l < lanes; ++l) {
      const C by = __shfl_sync(kWholeWarp, factor, l);
      if (e < d) sum = fma(by, part[l * pitch + 2 + e], sum);
    }
    if (e < d) out[e] = static_cast<T>(total == C(0) ? C(0) : sum / total);  // a row that sees no key is 0
  }
}

/// The queries of rows [row, row + kQueries), which are of one sequence, by one cluster of `blocks`. The first block
/// has places for all lanes. All threads have arrived at the cluster's barrier, and do so again at the end.
template <class R, int kQueries>
__device__ __forceinline__ void attend(const Problem<typename R::T>& p, int32_t row, int32_t head,
                                       const int32_t (&position)[kQueries], int blocks) {
  using C = Accumulate<typename R::T>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  const int rank = static_cast<int>(cluster_rank()), pitch = kQueries * (p.d + 2);
  C* const parts = shared_numbers<C>();
  {
    Lane<R, kQueries> lane(p, row, head, position);
    const int32_t splits = lane.last / kSplit + 1;
    bool may_write = false;
    const auto wait_for_places = [&] {
      if (!may_write) cluster_wait();
      may_write = true;
    };
    for (int l = rank + blocks * warp; l < min(kLanes, splits); l += blocks * warps) {
      lane.clear();
      for (int32_t split = l; split < splits; split += kLanes) lane.add(split);
      wait_for_places();
      lane.store((blocks == 1 ? parts : in_block(parts, 0)) + l * pitch);
    }
    wait_for_places();
  }
  cluster_sync();
  if (rank == 0)
    for (int task = warp, step = max(1, warps / kQueries), i = task / step; i < kQueries; i += max(1, warps / step))
      finish(p.out + (int64_t{row + i} * p.heads + head) * p.d, parts + i * (p.d + 2), p.d,
             min(kLanes, position[i] / kSplit + 1), pitch, warp % step, step);
  cluster_arrive();
}

/// A row of padding, or one that does not exist.
template <class T>
__device__ __forceinline__ void clear_row(const Problem<T>& p, int32_t row, int32_t head) {
  if (cluster_rank() > 0) return;
  T* const out = p.out + (int64_t{row} * p.heads + head) * p.d;
  for (int e = static_cast<int>(threadIdx.x); e < p.d; e += static_cast<int>(blockDim.x)) out[e] = T(0.0f);
}

template <class R>
__device__ __forceinline__ void attend_one(const Problem<typename R::T>& p, int32_t row, int32_t head, int blocks) {
  const int32_t position[1] = {p.rows.position(row, head == 0 && threadIdx.x == 0)};
  if (position[0] < 0) return clear_row(p, row, head);
  attend<R, 1>(p, row, head, position, blocks);
}

/// Before the preceding kernel has ended: begins to bring the first keys and values of each warp to the second-level
/// cache. An earlier kernel may still write slots, positions and blocks, so they only say what to prefetch.
template <class R>
__device__ __forceinline__ void prefetch_first(const Problem<typename R::T>& p, int32_t row, int32_t head, int blocks) {
  constexpr int kLine = 128 / sizeof(typename R::T);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int32_t split = static_cast<int32_t>(cluster_rank()) + blocks * warp,
                key = split * kSplit + static_cast<int32_t>(threadIdx.x) % kWarp;
  const int32_t slot = __ldcv(p.rows.slots + row), position = __ldcv(p.rows.positions + row);
  if (slot < 0 || slot >= p.rows.sequences || key >= position || position >= p.rows.capacity) return;
  const auto number = static_cast<int32_t>(p.rows.by_block(static_cast<uint32_t>(key)));
  const int32_t block = __ldcv(p.rows.table + int64_t{slot} * p.rows.per_sequence + number);
  if (block < 0 || block >= p.rows.blocks) return;
  const int64_t from = block * p.cache_block + (key - int64_t{number} * p.rows.by_block.divisor) * p.cache_row +
                       head / p.group * p.cache_head;
  for (int e = 0; e < p.d; e += kLine) {
    prefetch_line(p.k + from + e);
    prefetch_line(p.v + from + e);
  }
}

constexpr int kMostWarps = 4;               ///< of a block
constexpr int kWarpsOfMultiprocessor = 16;  ///< registers allow no more
/// What kernels are compiled for: with the true bound of 128 threads they use more registers.
constexpr int kMostThreads = 256;

/// What a cluster computes. Heads of a row are neighbours, and read neighbouring memory at the same time.
struct Place {
  int32_t rows, head;
};
__device__ __forceinline__ Place place_of(int32_t heads, int blocks) {
  const auto cluster = static_cast<int32_t>(blockIdx.x / static_cast<unsigned>(blocks));
  return {cluster / heads, cluster % heads};
}

/// One row and head a cluster.
template <class R>
__global__ __launch_bounds__(kMostThreads) void paged_rows(const __grid_constant__ Problem<typename R::T> p,
                                                           int blocks) {
  cluster_arrive();
  const Place at = place_of(p.heads, blocks);
  prefetch_first<R>(p, at.rows, at.head, blocks);
  lorry::cuda::begin_programmatic();
  attend_one<R>(p, at.rows, at.head, blocks);
}

/// kTile rows and one head a cluster.
template <class R>
__global__ __launch_bounds__(kMostThreads) void paged_tiles(const __grid_constant__ Problem<typename R::T> p,
                                                            int blocks) {
  cluster_arrive();
  lorry::cuda::begin_programmatic();
  const Place at = place_of(p.heads, blocks);
  const int32_t row = at.rows * kTile, head = at.head;
  const int32_t rows = min(kTile, p.rows.n - row);
  bool together = rows == kTile;
  int32_t position[kTile] = {};
  for (int i = 0; i < rows && together; ++i) {
    together = p.rows.slots[row + i] == p.rows.slots[row];
    position[i] = p.rows.position(row + i, false);
    together = together && position[i] >= 0;
  }
  if (together) return attend<R, kTile>(p, row, head, position, blocks);
  for (int32_t i = 0; i < rows; ++i) attend_one<R>(p, row + i, head, blocks);
}

// ---- launching ------------------------------------------------------------------------------------------------------

/// From here on tiles leave enough blocks to fill the device.
constexpr int64_t kTiledRows = 192;
constexpr int kMostBlocks = 8;

/// The blocks among which a row's head is divided: the more, the fewer of them there are.
int blocks_of_query(int64_t count, int device) {
  if (!has_clusters(device)) return 1;
  int blocks = 1;
  while (blocks < kMostBlocks && 2 * blocks * count <= int64_t{4} * lorry::cuda::properties(device).multiprocessors)
    blocks *= 2;
  return blocks;
}

/// The warps of a block: the most with which all blocks run at the same time; kMostWarps if even small ones do not.
int warps_of_block(int64_t blocks, int device) {
  for (int warps = kMostWarps; warps > 0; warps /= 2)
    if (blocks <= int64_t{lorry::cuda::properties(device).multiprocessors} * (kWarpsOfMultiprocessor / warps))
      return warps;
  return kMostWarps;
}

template <class R, bool kTiles>
void launch_as(const Problem<typename R::T>& p, Stream stream) {
  constexpr int64_t kQueries = kTiles ? kTile : 1;
  constexpr auto kKernel = [] {
    if constexpr (kTiles)
      return paged_tiles<R>;
    else
      return paged_rows<R>;
  }();
  const int device = stream.device.index;
  const int64_t rows = (p.rows.n + kQueries - 1) / kQueries;
  const int blocks = kTiles ? 1 : blocks_of_query(rows * p.heads, device);
  const int64_t shared = kLanes * kQueries * (p.d + 2) * int64_t{sizeof(Accumulate<typename R::T>)};
  const int64_t most = lorry::cuda::properties(device).shared_bytes_per_block;
  require<ShapeError>(shared <= most, "heads are too wide for this device; got d = {}", p.d);
  if (most > 48 << 10) allow_shared_once<kKernel>(device, static_cast<size_t>(most));
  const int64_t count = rows * p.heads * blocks;
  require<ShapeError>(count <= INT32_MAX, "too many rows for cuda; got {}", p.rows.n);
  lorry::cuda::launch(stream,
                      {.grid = static_cast<unsigned>(count),
                       .block = static_cast<unsigned>(warps_of_block(count, device) * kWarp),
                       .shared_bytes = static_cast<size_t>(shared),
                       .cluster = {static_cast<unsigned>(blocks), 1, 1}},
                      kKernel, p, blocks);
}

template <class R>
void choose_tiles(const Problem<typename R::T>& p, Stream stream) {
  constexpr bool kMayTile = R::kPieces == 1 && R::kVector > 1 && sizeof(typename R::T) < 8;
  if constexpr (kMayTile)
    if (p.rows.n >= kTiledRows) return launch_as<R, true>(p, stream);
  launch_as<R, false>(p, stream);
}

/// Whether every head of q and of the caches can be read in runs of 16 bytes.
template <class T>
bool reads_runs(const PagedAttention& args) {
  bool whole = args.q.size(2) % kRun<T> == 0;
  for (const Array* const x : {&args.q, &args.k_cache, &args.v_cache}) {
    whole &= aligned16(x->data);
    for (int d = 0; d + 1 < x->layout.rank; ++d) whole &= x->size(d) == 1 || x->stride(d) % kRun<T> == 0;
  }
  return whole;
}

template <class T>
void attention_as(const PagedAttention& args, Stream stream) {
  const int64_t d = args.q.size(2), vectors = d / kRun<T>;
  require<ShapeError>(d <= kWidest, "heads are too wide for cuda; got d = {}; expected at most {}", d, kWidest);
  const Problem<T> p{.out = args.out.as<T>(),
                     .q = args.q.as<const T>(),
                     .k = args.k_cache.as<const T>(),
                     .v = args.v_cache.as<const T>(),
                     .q_row = args.q.stride(0),
                     .q_head = args.q.stride(1),
                     .cache_block = args.k_cache.stride(0),
                     .cache_row = args.k_cache.stride(1),
                     .cache_head = args.k_cache.stride(2),
                     .rows = rows_of(args.rows, args.k_cache, stream),
                     .heads = narrow_size(args.q.size(1)),
                     .group = narrow_size(args.q.size(1) / args.k_cache.size(2)),
                     .d = narrow_size(d),
                     .scale = static_cast<Accumulate<T>>(args.scale)};
  if (!reads_runs<T>(args)) {
    if (d <= 2 * kWarp) return choose_tiles<Reading<T, 1, kWarp, 2>>(p, stream);
    return choose_tiles<Reading<T, 1, kWarp, kWidest / kWarp>>(p, stream);
  }
  constexpr int kMostPieces = static_cast<int>(kWidest) / (kRun<T> * kWarp);
  if constexpr (sizeof(T) == 2)
    if (vectors <= 8) return choose_tiles<Reading<T, kRun<T>, 8, 1>>(p, stream);
  if constexpr (sizeof(T) <= 4)
    if (vectors <= 16) return choose_tiles<Reading<T, kRun<T>, 16, 1>>(p, stream);
  if constexpr (sizeof(T) >= 4)
    if (vectors <= kWarp) return choose_tiles<Reading<T, kRun<T>, kWarp, 1>>(p, stream);
  choose_tiles<Reading<T, kRun<T>, kWarp, kMostPieces>>(p, stream);
}

void attention(const PagedAttention& args, Stream stream) {
  if (args.out.numel() == 0) return;
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) { attention_as<T>(args, stream); });
}

}  // namespace

const PagedKernels& paged_kernels() {
  static constexpr PagedKernels kKernels{.write = paged_write, .attention = attention};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
