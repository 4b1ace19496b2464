// Norms over lists of tensors, with the order of additions defined in kernels/list.h, and so with the bits of the CPU.
//
// A warp processes a tile: lane l has the sums 4 l to 4 l + 3 of the 128, so that a row of 128 elements is one access
// of up to 16 bytes per lane; eight rows (four of f64) are in flight. The warp that finishes the last tile of a group
// folds the group, and the one that finishes the last group folds the total and ends the norm: one launch per list, and
// nothing waits. Counters start at zero: Counters in list.h. Bytes: every element once; a tile's sum costs 8 of 16,384.

#include "lorry/formula/clip.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/list/list.h"
#include "lorry/kernels/cuda/table.h"
#include "lorry/kernels/list.h"

namespace lorry::kernels::cuda {
namespace {

constexpr uint32_t kAll = 0xffffffffu;
constexpr int kSums = 128;
/// The size in bytes up to which lists may still be in the cache when a step reads them again: about half of an H200's
/// cache, because the step reads further arrays.
constexpr int64_t kMostInCache = 24 << 20;

// ---- folding --------------------------------------------------------------------------------------------------------

/// x is positive. Not inlined, because it is rarely used.
__device__ __noinline__ double power(double x, double p) { return pow(x, p); }

template <NormOrder kOrder, class T>
__device__ __forceinline__ double fold(double total, T element, double p) {
  const double x = static_cast<double>(static_cast<Accumulate<T>>(element));
  if constexpr (kOrder == NormOrder::power) return total + power(fabs(x), p);
  // The bits are those of the formula, because the square of an f32 is exact in f64.
  if constexpr (kOrder == NormOrder::two && sizeof(T) < 8) return fma(x, x, total);
  using Fold = formula::ListFold<kOrder>;
  return Fold::join(total, Fold::term(x));
}

template <NormOrder kOrder>
__device__ __forceinline__ double join_with(double own, double sent, int distance) {
  return formula::ListFold<kOrder>::join(own, __shfl_xor_sync(kAll, sent, distance));
}

/// Adds the 128 sums of a warp in halves. Every lane returns the result.
template <NormOrder kOrder>
__device__ __forceinline__ double join_lanes(const double (&s)[4], int lane) {
  // k and k + 64: lane l and lane l + 16. Of their four pairs each lane adds two; then, for k + 32, one of these two.
  // So nothing is added twice.
  const bool high = (lane & 16) != 0, odd = (lane & 8) != 0;
  const double even_sum = join_with<kOrder>(high ? s[2] : s[0], high ? s[0] : s[2], 16);
  const double odd_sum = join_with<kOrder>(high ? s[3] : s[1], high ? s[1] : s[3], 16);
  double sum = join_with<kOrder>(odd ? odd_sum : even_sum, odd ? even_sum : odd_sum, 8);
  for (int distance = 4; distance > 0; distance /= 2)
    sum = join_with<kOrder>(sum, sum, distance);  // k + 16, k + 8, k + 4
  sum = join_with<kOrder>(sum, sum, 16);          // k + 2
  return join_with<kOrder>(sum, sum, 8);          // k + 1
}

/// Four neighbouring elements.
template <class T>
struct Four {
  static constexpr int kAccess = sizeof(T) == 8 ? 2 : 4;
  Run<T, kAccess> runs[4 / kAccess];

  /// kShared: written by other blocks of this launch; bypasses this multiprocessor's cache.
  template <bool kShared>
  __device__ __forceinline__ void load(const T* from, bool streams) {
#pragma unroll
    for (int r = 0; r < 4 / kAccess; ++r) {
      if constexpr (kShared) {
        const double2 both = __ldcg(reinterpret_cast<const double2*>(from) + r);
        runs[r].at[0] = both.x, runs[r].at[1] = both.y;
      } else {
        runs[r] = streams ? load_streaming<T, kAccess>(from + r * kAccess) : load_run<T, kAccess>(from + r * kAccess);
      }
    }
  }
  /// Loads the first `count` elements; the others are zero and add nothing.
  template <bool kShared>
  __device__ __forceinline__ void load_some(const T* from, int count) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      T& element = runs[j / kAccess].at[j % kAccess];
      element = T();
      if (j >= count) continue;
      if constexpr (kShared)
        element = __ldcg(from + j);
      else
        element = from[j];
    }
  }
  __device__ __forceinline__ const T& operator[](int j) const { return runs[j / kAccess].at[j % kAccess]; }
};

/// The sum of one warp's elements; every lane returns it. streams: the elements need not stay in the cache.
template <NormOrder kOrder, bool kShared, class T>
__device__ __forceinline__ double sum_of(const T* x, int count, int lane, double p, bool streams = false) {
  constexpr int kFlight = kOrder == NormOrder::power ? 2 : sizeof(T) == 8 ? 4 : 8;
  constexpr auto kAccessBytes = static_cast<unsigned>(Four<T>::kAccess * sizeof(T));
  const bool aligned = reinterpret_cast<uintptr_t>(x) % kAccessBytes == 0;
  double s[4] = {};
#pragma unroll 1
  for (int row = 0; row < count; row += kFlight * kSums) {
    Four<T> loaded[kFlight];
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const int i = row + u * kSums + 4 * lane, left = count - i;
      if (aligned && left >= 4)
        loaded[u].template load<kShared>(x + i, streams);
      else
        loaded[u].template load_some<kShared>(x + i, left);
    }
#pragma unroll
    for (int u = 0; u < kFlight; ++u)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[j] = fold<kOrder>(s[j], loaded[u][j], p);
  }
  return join_lanes<kOrder>(s, lane);
}

template <NormOrder kOrder>
__device__ __forceinline__ double sum_of_sums(const double* sums, int count, int lane) {
  return sum_of<formula::kNextOrder<kOrder>, true>(sums, count, lane, 0);
}

template <NormOrder kOrder>
__device__ __forceinline__ double root(double sum, double p) {
  if constexpr (kOrder == NormOrder::two) return sqrt(sum);
  if constexpr (kOrder == NormOrder::power) return power(sum, 1 / p);
  return sum;
}

// ---- the pass over all elements -------------------------------------------------------------------------------------

/// The last part of a norm, after the sum.
struct End {
  double* sum;  ///< without root and end
  double* total;
  double* factor;
  const double* scale;
  double p;
  double max_norm;
  bool skip_nonfinite;

  void addresses(auto& visit) const { visit(sum, total, factor, scale); }

  End(double* sum_of_all, double* norm, double power, const NormEnd& end)
      : sum(sum_of_all),
        total(norm),
        factor(end.factor),
        scale(end.scale),
        p(power),
        max_norm(end.max_norm),
        skip_nonfinite(end.skip_nonfinite) {}
  bool is_asked_for() const { return sum != nullptr || total != nullptr || factor != nullptr; }

  template <NormOrder kOrder>
  __device__ void finish(double all) const {
    if (sum != nullptr) *sum = all;
    const formula::Clipped clipped = formula::clip(root<kOrder>(all, p), scale ? *scale : 1, max_norm, skip_nonfinite);
    if (total != nullptr) *total = clipped.norm;
    if (factor != nullptr) *factor = clipped.factor;
  }
};

template <NormOrder kOrder>
struct NormBody {
  static constexpr int kArrays = 1, kTile = kNormTile, kRunLength = 1, kBlocks = 4;

  double *sums, *groups;  ///< sums of tiles and of groups
  uint32_t* tickets;      ///< finished tiles per group, then the number of finished groups
  uint32_t tiles;         ///< of all lists
  uint32_t first;         ///< first tile of this list
  DType dtype;
  bool folds;    ///< whether a total or factor is needed
  bool streams;  ///< whether the lists are too large to stay in the cache for the step that follows
  End end;

  void addresses(auto& visit) const { visit(sums, groups, tickets, end); }

  __device__ __forceinline__ void operator()(const Entry<1>& entry, const Tile& tile, int lane) const {
    const double sum = visit(dtype, [&]<class T>(Type<T>) -> double {
      if constexpr (kFloatingType<T>)
        return sum_of<kOrder, false>(static_cast<const T*>(entry.at[0]) + tile.first, tile.count, lane, end.p, streams);
      else
        __builtin_unreachable();  // `norm` refuses such lists
    });
    if (lane == 0) __stcg(&sums[first + entry.first_tile + tile.first / kNormTile], sum);
  }

  /// A block's tiles belong to one group or two. One warp per group counts them, and folds the group when it is
  /// complete.
  __device__ __forceinline__ void close(uint32_t block_begin, uint32_t block_end) const {
    if (!folds) return;
    __syncthreads();
    block_begin += first, block_end += first;
    const uint32_t group = block_begin / kNormGroup + threadIdx.x / 32;
    const uint32_t begin = group * kNormGroup, stop = min(begin + static_cast<uint32_t>(kNormGroup), tiles);
    if (begin >= block_end) return;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const uint32_t count = (tiles + kNormGroup - 1) / kNormGroup;
    bool last = false;
    if (lane == 0) {
      const uint32_t own = min(block_end, stop) - max(block_begin, begin);
      __threadfence();
      last = atomicAdd(&tickets[group], own) + own == stop - begin;
    }
    if (!__shfl_sync(kAll, last, 0)) return;
    __threadfence();
    const double sum = sum_of_sums<kOrder>(sums + begin, static_cast<int>(stop - begin), lane);
    if (lane == 0) {
      tickets[group] = 0;
      __stcg(&groups[group], sum);
      __threadfence();
      last = atomicInc(&tickets[count], count - 1) == count - 1;
    }
    if (!__shfl_sync(kAll, last, 0)) return;
    __threadfence();
    const double all = sum_of_sums<kOrder>(groups, static_cast<int>(count), lane);
    if (lane == 0) end.template finish<kOrder>(all);
  }
};

/// Ends a norm, given its sum; null: of a list without elements.
template <NormOrder kOrder>
__global__ void finish_norm(const double* sum, const End end) {
  lorry::cuda::begin_programmatic();
  end.template finish<kOrder>(sum != nullptr ? *sum : 0);
}

/// One block per entry; its tiles are starts[e] to starts[e + 1]. Warp k % 8 has sum k of the 128 over groups.
template <NormOrder kOrder>
__global__ void __launch_bounds__(kListThreads)
    fold_entries(const double* sums, const uint32_t* starts, double p, double* out) {
  lorry::cuda::begin_programmatic();
  __shared__ double joined[kSums];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
  if (threadIdx.x < kSums) joined[threadIdx.x] = 0;
  __syncthreads();
  const int groups = static_cast<int>((end - begin + kNormGroup - 1) / kNormGroup);
  for (int g = warp; g < groups; g += kListWarps) {
    const uint32_t at = begin + static_cast<uint32_t>(g * kNormGroup);
    const double sum =
        sum_of_sums<kOrder>(sums + at, static_cast<int>(min(end - at, static_cast<uint32_t>(kNormGroup))), lane);
    if (lane == 0) joined[g % kSums] = fold<formula::kNextOrder<kOrder>>(joined[g % kSums], sum, 0);
  }
  __syncthreads();
  if (warp != 0) return;
  const double s[4] = {joined[4 * lane], joined[4 * lane + 1], joined[4 * lane + 2], joined[4 * lane + 3]};
  const double sum = join_lanes<kOrder>(s, lane);
  if (lane == 0) out[blockIdx.x] = root<kOrder>(sum, p);
}

template <NormOrder kOrder>
void norm_of(const ListNormCall& call, const Stream& stream) {
  using Body = NormBody<kOrder>;
  const auto rounded = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
  int64_t tiles = 0, entries = 0, bytes = 0;
  for (const List* list : call.lists) {
    require<DTypeError>(is_floating(list->dtype(0)), "a list is not floating; got {}; expected one of {}",
                        list->dtype(0), kFloatingNames);
    bytes += list->elements() * size_of(list->dtype(0));
    tiles += CudaList::of(*list, {Body::kTile, Body::kRunLength}, stream).tiles();
    entries += static_cast<int64_t>(list->entries().size());
  }
  require<ValueError>(tiles <= INT32_MAX, "more elements than a norm takes; got {} tiles of {}", tiles, kNormTile);
  const End end(call.sum, call.total, call.p, call.end);
  const bool folds = end.is_asked_for();
  if (tiles == 0) {
    if (folds) lorry::cuda::launch(stream, {1, 1}, finish_norm<kOrder>, nullptr, end);
    if (call.per_tensor != nullptr && entries > 0) lorry::cuda::fill_bytes(stream, call.per_tensor, 0, entries * 8);
    return;
  }
  // The workspace: tickets, then the first tile of each entry if entries are to be folded, then the sums of groups and
  // of tiles.
  const int64_t groups = (tiles + kNormGroup - 1) / kNormGroup, ticket_bytes = rounded((groups + 1) * 4);
  const int64_t start_bytes = call.per_tensor != nullptr ? rounded((entries + 1) * 4) : 0,
                head = ticket_bytes + start_bytes;
  const uint64_t key = static_cast<uint64_t>(tiles) << 32 |
                       static_cast<uint64_t>(call.per_tensor != nullptr ? entries : -1) % (uint64_t{1} << 32);
  CudaList& keeper = CudaList::of(*call.lists[0], {Body::kTile, Body::kRunLength}, stream);
  char* const memory =
      keeper.workspace(key, head + rounded(groups * 8) + tiles * 8, ticket_bytes, start_bytes, stream, [&](char* to) {
        auto* start = reinterpret_cast<uint32_t*>(to);
        uint32_t next = 0;
        for (const List* list : call.lists)
          for (const ListEntry& entry : list->entries()) {
            *start++ = next;
            next += static_cast<uint32_t>((entry.count + kNormTile - 1) / kNormTile);
          }
        *start = next;
      });
  Body body{.sums = reinterpret_cast<double*>(memory + head + rounded(groups * 8)),
            .groups = reinterpret_cast<double*>(memory + head),
            .tickets = keeper.work_counters().data(),
            .tiles = static_cast<uint32_t>(tiles),
            .first = 0,
            .dtype = kF32,
            .folds = folds,
            .streams = bytes > kMostInCache,
            .end = end};
  if (folds) keeper.work_counters().begin(stream);
  for (const List* list : call.lists) {
    body.dtype = list->dtype(0);
    const uint32_t own = CudaList::of(*list, {Body::kTile, Body::kRunLength}, stream).tiles();
    if (own > 0) over_list(*list, body, stream);
    body.first += own;
  }
  if (folds) keeper.work_counters().end();
  if (call.per_tensor != nullptr)
    lorry::cuda::launch(stream, {static_cast<unsigned>(entries), kListThreads}, fold_entries<kOrder>, body.sums,
                        reinterpret_cast<const uint32_t*>(memory + ticket_bytes), call.p, call.per_tensor);
}

/// Calls f with the order as a compile-time constant.
template <class F>
void visit_order(NormOrder order, const F& f) {
  switch (order) {
#define LORRY_LIST_FOLD(order, Fold) \
  case NormOrder::order:             \
    return f(std::integral_constant<NormOrder, NormOrder::order>());
#include "lorry/formula/list.def"
    case NormOrder::power:
      return f(std::integral_constant<NormOrder, NormOrder::power>());
  }
}

void norm(const ListNormCall& call, const Stream& stream) {
  visit_order(call.order, [&](auto order) { norm_of<order()>(call, stream); });
}

void finish(const NormFinishCall& call, const Stream& stream) {
  const End end(nullptr, call.total, call.p, call.end);
  visit_order(call.order, [&](auto order) {
    lorry::cuda::launch(stream, {1, 1}, finish_norm<order()>, call.sum, end);
  });
}

// ---- scaling --------------------------------------------------------------------------------------------------------

/// Reads and writes every element once, unless the factor is 1.
template <class T>
struct ScaleBody {
  static constexpr int kArrays = 1, kTile = 4'096, kRunLength = kRun<T>, kBlocks = 4;
  const double* factor;

  void addresses(auto& visit) const { visit(factor); }

  __device__ __forceinline__ void operator()(const Entry<1>& entry, const Tile& tile, int lane) const {
    using C = Accumulate<T>;
    constexpr int kFlight = 4, kStep = 32 * kRunLength;
    if (*factor == 1) return;
    const C by = formula::multiplier(static_cast<C>(*factor));
    T* const x = static_cast<T*>(entry.at[0]) + tile.first;
    const auto scale = [&](T& element) { element = T(static_cast<C>(element) * by); };
    for (int i = lane; i < tile.runs; i += 32) scale(x[i]);
    for (int i = tile.runs + lane * kRunLength; i < tile.rest; i += kFlight * kStep) {
      Run<T, kRunLength> runs[kFlight];
#pragma unroll
      for (int u = 0; u < kFlight; ++u)
        if (i + u * kStep < tile.rest) runs[u] = load_run<T, kRunLength>(x + i + u * kStep);
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        if (i + u * kStep >= tile.rest) break;
#pragma unroll
        for (int e = 0; e < kRunLength; ++e) scale(runs[u].at[e]);
        store_run(x + i + u * kStep, runs[u]);
      }
    }
    for (int i = tile.rest + lane; i < tile.count; i += 32) scale(x[i]);
  }
};

void scale(const List& list, const double* factor, const Stream& stream) {
  visit_floating(list.dtype(0), [&]<class T>(Type<T>) { over_list(list, ScaleBody<T>{factor}, stream); });
}

}  // namespace

const ListNormKernels& list_norm_kernels() {
  static constexpr ListNormKernels kKernels{.norm = norm, .finish = finish, .scale = scale};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
