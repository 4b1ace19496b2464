// The next token. A cluster of 8 blocks draws a row's token. The bounds, a number of tokens (top_k) and a sum of
// weights (top_p), are found without sorting the row: the weights are summed in buckets of neighbouring logits, and
// only the bucket in which a bound falls is looked at closely. Then the weights of the tokens that are left are summed
// by index. Weights are integers (formula/tokens.h), so sums are exact in any order.
//
// A cluster holds a row of up to 65,536 logits of 16 bits, and reads it once. Longer ones it reads for the largest, for
// the sums and to find the token, and with bounds once more for the buckets and for each bound; from the cache but the
// first time.

#include "lorry/kernels/tokens.h"

#include <algorithm>
#include <bit>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/formula/tokens.h"
#include "lorry/kernels/common/sequences.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/cluster.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

using lorry::cuda::AssertSite;
using lorry::cuda::DeviceAssert;

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kBuckets = 1024, kEach = kBuckets / kThreads;
constexpr int kFew = kThreads;  ///< tokens that are put in order at once
constexpr int kMostBlocks = 8;
constexpr int kAtOnce = 8;               ///< logits that a thread has in flight
constexpr int64_t kMostHeld = 16 << 10;  ///< bytes of logits in shared memory: 4 blocks of a multiprocessor have room

template <class T>
struct Problem {
  int64_t* out;
  const T* logits;
  const float *temperature, *top_p;
  const int32_t* top_k;
  const double* uniform;
  int64_t step;          ///< from row to row of the logits
  int32_t vocab, chunk;  ///< chunk: of a block
  bool held;             ///< whether a block's logits have room in its dynamic shared memory
  AssertSite site;

  void addresses(auto& visit) const { visit(out, logits, temperature, top_p, top_k, uniform); }
};

/// Tokens and weights by bucket. A weight of 32 bits is summed in three parts, because shared memory adds 32 bits at a
/// time: 2^20 tokens fit.
struct Histogram {
  static constexpr int kPart = 11;
  uint32_t count[kBuckets], part[3][kBuckets];
};
/// Of all blocks, then summed up to each bucket.
struct Sums {
  uint64_t weight[kBuckets];
  uint32_t count[kBuckets];
};
/// A block's tokens of a bucket, by order; twice, because other blocks may still read the last ones.
struct Lists {
  uint64_t order[2][kFew];
  uint32_t count[2];
};
/// Those of all blocks.
struct Ordered {
  uint64_t order[kFew];
  uint32_t weight[kFew];
};
struct Extent {
  uint64_t first, last;  ///< in order
};

/// What share their memory are never in use at the same time: between a histogram and lists is a barrier.
struct Memory {
  union {
    Histogram own;
    Lists lists;
  };
  Sums row;
  union {
    Sums subset;
    Ordered ordered;
  };
  Extent extent, warp_extent[kWarps];
  uint64_t warp_weight[kWarps];
  uint32_t warp_count[kWarps];
  uint64_t found_order, found_weight, block_weight;
};
static_assert(sizeof(Memory) <= 48 << 10);

/// A place in the order of a row's tokens.
struct Place {
  uint64_t order;
  uint64_t weight;  ///< of the tokens up to it
};
/// The place at which a bound is reached.
struct Bound {
  uint64_t value;
  bool counts;  ///< tokens; else weights
};

/// One block's part in drawing one row's token. All blocks of the cluster take the same decisions.
template <class T>
class Row {
 public:
  __device__ Row(const Problem<T>& p, int64_t row, int blocks, Memory& memory)
      : m_(memory), logits_(p.logits + row * p.step), blocks_(blocks), rank_(static_cast<int>(cluster_rank())) {
    begin_ = min(p.vocab, rank_ * p.chunk), end_ = min(p.vocab, begin_ + p.chunk);
    temperature_ = p.temperature[row];
    if (p.held) hold();
  }

  /// False if no token has a probability.
  __device__ bool look() {
    const Extent all = extent_of([](float, uint64_t) { return true; });
    if (all.first == UINT64_MAX) return false;
    likeliest_ = all.first;
    largest_ = logit(all.first);
    // Below, weights are 0.
    weights_ = formula::TokenWeights(largest_, temperature_);
    const float least = largest_ + static_cast<float>(formula::kLeastTokenExponent) * temperature_;
    scale_ = kBuckets / (largest_ - fmaxf(logit(all.last), least));
    return true;
  }

  /// Writes the drawn token. One thread of one of the blocks does.
  __device__ void draw(int64_t* out, int32_t top_k, float top_p, double uniform) {
    const int64_t limit = formula::token_limit(temperature_, top_k, INT64_MAX);
    if (limit != 1) return pick(out, limit < INT64_MAX || top_p < 1 ? last_of(top_k, top_p) : UINT64_MAX, uniform);
    if (rank_ == 0 && threadIdx.x == 0) *out = token(likeliest_);
  }

 private:
  /// Brings the block's logits to shared memory.
  __device__ void hold() {
    extern __shared__ __align__(16) unsigned char held[];
    T* const to = reinterpret_cast<T*>(held);
    for (int32_t first = begin_ + static_cast<int32_t>(threadIdx.x); first < end_; first += kAtOnce * kThreads) {
      T x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (first + k * kThreads < end_) x[k] = logits_[first + k * kThreads];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (first + k * kThreads < end_) to[first + k * kThreads - begin_] = x[k];
    }
    logits_ = to - begin_;
    __syncthreads();
  }

  static __device__ int64_t token(uint64_t order) { return static_cast<uint32_t>(order); }
  static __device__ float logit(uint64_t order) {
    const uint32_t rising = ~static_cast<uint32_t>(order >> 32);
    return __uint_as_float((rising & 0x80000000u) != 0 ? rising ^ 0x80000000u : ~rising);
  }
  __device__ uint32_t weight(float x) const { return weights_(x); }
  /// Rises as the logit falls.
  __device__ int bucket(float x) const {
    return min(kBuckets - 1, static_cast<int>((largest_ - x) * scale_));  // NaN, of infinite logits, becomes 0
  }

  /// The order of the last token that top_k and top_p leave.
  __device__ uint64_t last_of(int32_t top_k, float top_p) {
    fill(m_.row, [&](float x, uint64_t) { return bucket(x); });
    const auto all = int64_t{m_.row.count[kBuckets - 1]};
    const int64_t limit = formula::token_limit(temperature_, top_k, all);
    Place last{UINT64_MAX, m_.row.weight[kBuckets - 1]};
    if (limit < all) last = find({static_cast<uint64_t>(limit), true});
    const uint64_t mass = formula::token_mass(top_p, last.weight);
    return mass < last.weight ? find({mass, false}).order : last.order;
  }

  /// Draws among the tokens up to `last`, by index. Each thread has neighbouring tokens.
  __device__ void pick(int64_t* out, uint64_t last, double uniform) {
    const int thread = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    const int32_t each = (end_ - begin_ + kThreads - 1) / kThreads;
    const int32_t first = min(end_, begin_ + static_cast<int32_t>(threadIdx.x) * each), end = min(end_, first + each);
    const auto weight_of = [&](int32_t i) {
      const float x = static_cast<float>(logits_[i]);
      return x > -HUGE_VALF && formula::token_order(x, static_cast<uint32_t>(i)) <= last ? weight(x) : 0u;
    };
    uint64_t mine = 0;
    for (int32_t i = first; i < end; ++i) mine += weight_of(i);
    uint64_t before = sum_up(mine, kWarp) - mine;  // the weight of the tokens before the thread's
    if (thread == kWarp - 1) m_.warp_weight[warp] = before + mine;
    __syncthreads();
    const uint64_t of_warp = thread < kWarps ? m_.warp_weight[thread] : 0, up_to_warp = sum_up(of_warp, kWarps);
    before += __shfl_sync(kWholeWarp, up_to_warp - of_warp, warp);
    if (threadIdx.x == kWarps - 1) m_.block_weight = up_to_warp;
    cluster_sync();
    const uint64_t of_block = thread < blocks_ ? *in_block(&m_.block_weight, static_cast<uint32_t>(thread)) : 0,
                   up_to_block = sum_up(of_block, kMostBlocks);
    before += __shfl_sync(kWholeWarp, up_to_block - of_block, rank_);
    const uint64_t point = formula::token_point(uniform, __shfl_sync(kWholeWarp, up_to_block, kMostBlocks - 1));
    if (point < before || point >= before + mine) return;
    int32_t i = first;
    while ((before += weight_of(i)) <= point) ++i;
    *out = i;
  }

  /// The sum over the lanes up to this one. Only the first `lanes`, a power of two, need be right.
  static __device__ uint64_t sum_up(uint64_t x, int lanes) {
    for (int step = 1; step < lanes; step *= 2) {
      const uint64_t lower = __shfl_up_sync(kWholeWarp, x, step);
      if (static_cast<int>(threadIdx.x) % kWarp >= step) x += lower;
    }
    return x;
  }

  /// Calls f(logit, order) for the block's tokens with a logit.
  template <class F>
  __device__ void each(const F& f) const {
    for (int32_t first = begin_ + static_cast<int32_t>(threadIdx.x); first < end_; first += kAtOnce * kThreads) {
      float x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int32_t i = first + k * kThreads;
        x[k] = i < end_ ? static_cast<float>(logits_[i]) : -HUGE_VALF;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (x[k] > -HUGE_VALF) f(x[k], formula::token_order(x[k], static_cast<uint32_t>(first + k * kThreads)));
    }
  }

  static __device__ Extent joined(Extent a, Extent b) { return {min(a.first, b.first), max(a.last, b.last)}; }
  static __device__ Extent over_warp(Extent x) {
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2)
      x = joined(x, {__shfl_xor_sync(kWholeWarp, x.first, step), __shfl_xor_sync(kWholeWarp, x.last, step)});
    return x;
  }

  /// The first and the last of the row's tokens that belong; first is UINT64_MAX if there are none.
  template <class Belongs>
  __device__ Extent extent_of(const Belongs& belongs) {
    const int thread = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    const Extent none{UINT64_MAX, 0};
    Extent mine = none;
    each([&](float x, uint64_t order) {
      if (belongs(x, order)) mine = joined(mine, {order, order});
    });
    mine = over_warp(mine);
    if (thread == 0) m_.warp_extent[warp] = mine;
    __syncthreads();
    const Extent block = over_warp(thread < kWarps ? m_.warp_extent[thread] : none);
    if (threadIdx.x == 0) m_.extent = block;
    cluster_sync();
    return over_warp(thread < blocks_ ? *in_block(&m_.extent, static_cast<uint32_t>(thread)) : none);
  }

  /// Sums tokens and weights in the buckets that `where(logit, order)` says, none below 0, up to each bucket.
  template <class Where>
  __device__ void fill(Sums& sums, const Where& where) {
    Histogram& own = m_.own;
    for (int b = static_cast<int>(threadIdx.x); b < kBuckets; b += kThreads)
      own.count[b] = own.part[0][b] = own.part[1][b] = own.part[2][b] = 0;
    __syncthreads();
    each([&](float x, uint64_t order) {
      const int b = where(x, order);
      const uint32_t w = b >= 0 ? weight(x) : 0;
      if (w == 0) return;
      constexpr uint32_t kMask = (1u << Histogram::kPart) - 1;
      atomicAdd(&own.count[b], 1u);
#pragma unroll
      for (int k = 0; k < 3; ++k)
        if (const uint32_t part = w >> k * Histogram::kPart & kMask; part != 0) atomicAdd(&own.part[k][b], part);
    });
    cluster_sync();
    join(sums);
    cluster_sync();
    accumulate(sums);
  }

  /// Adds the blocks' histograms: each block its share of the buckets, for all.
  __device__ void join(Sums& sums) {
    const int share = kBuckets / blocks_;
    for (int b = rank_ * share + static_cast<int>(threadIdx.x); b < (rank_ + 1) * share; b += kThreads) {
      uint32_t count = 0;
      uint64_t weight = 0;
#pragma unroll
      for (int from = 0; from < kMostBlocks; ++from) {
        if (from >= blocks_) continue;
        const Histogram& other = *in_block(&m_.own, static_cast<uint32_t>(from));
        count += other.count[b];
#pragma unroll
        for (int k = 0; k < 3; ++k) weight += uint64_t{other.part[k][b]} << k * Histogram::kPart;
      }
#pragma unroll
      for (int to = 0; to < kMostBlocks; ++to) {
        if (to >= blocks_) continue;
        Sums& other = *in_block(&sums, static_cast<uint32_t>(to));
        other.count[b] = count, other.weight[b] = weight;
      }
    }
  }

  /// From the sums of buckets to those up to each bucket.
  __device__ void accumulate(Sums& sums) {
    const int thread = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    const int first = static_cast<int>(threadIdx.x) * kEach;
    uint64_t weight = 0;
    uint32_t count = 0;
    for (int b = first; b < first + kEach; ++b) weight += sums.weight[b], count += sums.count[b];
    uint64_t weights = weight;
    uint32_t counts = count;
    for (int step = 1; step < kWarp; step *= 2) {
      const uint64_t w = __shfl_up_sync(kWholeWarp, weights, step);
      const uint32_t c = __shfl_up_sync(kWholeWarp, counts, step);
      if (thread >= step) weights += w, counts += c;
    }
    if (thread == kWarp - 1) m_.warp_weight[warp] = weights, m_.warp_count[warp] = counts;
    __syncthreads();
    weights -= weight, counts -= count;
    for (int w = 0; w < warp; ++w) weights += m_.warp_weight[w], counts += m_.warp_count[w];
    for (int b = first; b < first + kEach; ++b) {
      sums.weight[b] = weights += sums.weight[b];
      sums.count[b] = counts += sums.count[b];
    }
    __syncthreads();
  }

  static __device__ uint64_t value(const Sums& sums, int b, bool counts) {
    return b < 0 ? 0 : counts ? sums.count[b] : sums.weight[b];
  }
  /// The bucket in which the bound is reached.
  static __device__ int reached(const Sums& sums, const Bound& bound) {
    int low = 0, high = kBuckets - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (value(sums, middle, bound.counts) >= bound.value)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  /// Tokens of the row's bucket `bucket` with orders from first to last.
  struct Subset {
    int bucket;
    Extent extent;
    uint32_t count;
    uint64_t before;  ///< the weight of the tokens before it
  };
  __device__ bool belongs(const Subset& subset, float x, uint64_t order) const {
    return bucket(x) == subset.bucket && order >= subset.extent.first && order <= subset.extent.last && weight(x) > 0;
  }
  /// The part of a subset, or of the row, that is in bucket b of `sums`. What is before it is taken off the bound.
  static __device__ void enter(Subset& subset, const Sums& sums, int b, Bound& bound) {
    subset.count = static_cast<uint32_t>(value(sums, b, true) - value(sums, b - 1, true));
    subset.before += value(sums, b - 1, false);
    bound.value -= value(sums, b - 1, bound.counts);
  }

  __device__ Place find(Bound bound) {
    const int b = reached(m_.row, bound);
    Subset subset{b, {0, UINT64_MAX}, 0, 0};
    enter(subset, m_.row, b, bound);
    while (subset.count > kFew) narrow(subset, bound);
    return settle(subset, bound);
  }

  /// Goes on with a part of a subset: its orders are divided into ranges.
  __device__ void narrow(Subset& subset, Bound& bound) {
    const Extent extent = extent_of([&](float x, uint64_t order) { return belongs(subset, x, order); });
    const int bits = 64 - __clzll(static_cast<long long>(extent.last - extent.first));
    const int shift = max(0, bits - std::bit_width(unsigned{kBuckets - 1}));
    fill(m_.subset, [&](float x, uint64_t order) {
      return belongs(subset, x, order) ? static_cast<int>((order - extent.first) >> shift) : -1;
    });
    const int b = reached(m_.subset, bound);
    subset.extent.first = extent.first + (static_cast<uint64_t>(b) << shift);
    subset.extent.last = min(extent.last, subset.extent.first + ((uint64_t{1} << shift) - 1));
    enter(subset, m_.subset, b, bound);
  }

  /// Every block lists the subset and finds the token at which the bound is reached.
  __device__ Place settle(const Subset& subset, const Bound& bound) {
    const int turn = turn_;
    turn_ ^= 1;
    if (threadIdx.x == 0) m_.lists.count[turn] = 0;
    __syncthreads();
    each([&](float x, uint64_t order) {
      if (belongs(subset, x, order)) m_.lists.order[turn][atomicAdd(&m_.lists.count[turn], 1u)] = order;
    });
    cluster_sync();
    const auto mine = static_cast<uint32_t>(threadIdx.x);
    if (mine < subset.count) {
      m_.ordered.order[mine] = listed(turn, mine);
      m_.ordered.weight[mine] = weight(logit(m_.ordered.order[mine]));
    }
    __syncthreads();
    if (mine < subset.count) {
      uint64_t weights = 0;
      uint32_t counts = 0;
      for (uint32_t i = 0; i < subset.count; ++i)
        if (m_.ordered.order[i] <= m_.ordered.order[mine]) weights += m_.ordered.weight[i], ++counts;
      const bool here = bound.counts ? counts == bound.value
                                     : weights >= bound.value && weights - m_.ordered.weight[mine] < bound.value;
      if (here) m_.found_order = m_.ordered.order[mine], m_.found_weight = weights;
    }
    __syncthreads();
    return {m_.found_order, subset.before + m_.found_weight};
  }

  /// Entry i of all blocks' lists, one after the other.
  __device__ uint64_t listed(int turn, uint32_t i) {
    int block = 0;
    uint32_t before = 0, all = 0;
#pragma unroll
    for (int from = 0; from < kMostBlocks; ++from) {
      if (from < blocks_ && i >= all) block = from, before = all;
      all += from < blocks_ ? *in_block(&m_.lists.count[turn], static_cast<uint32_t>(from)) : 0;
    }
    return in_block(m_.lists.order[turn], static_cast<uint32_t>(block))[i - before];
  }

  Memory& m_;
  const T* logits_;
  int blocks_, rank_, turn_ = 0;
  int32_t begin_, end_;
  float temperature_, largest_ = 0, scale_ = 0;
  formula::TokenWeights weights_{0, 1};
  uint64_t likeliest_ = 0;
};

template <class T>
__global__ __launch_bounds__(kThreads) void sample_rows(const __grid_constant__ Problem<T> p, int blocks) {
  lorry::cuda::begin_programmatic();
  __shared__ __align__(16) unsigned char bytes[sizeof(Memory)];
  const int64_t index = blockIdx.x / static_cast<unsigned>(blocks);
  Row<T> row(p, index, blocks, *reinterpret_cast<Memory*>(bytes));
  if (row.look()) {
    row.draw(p.out + index, p.top_k[index], p.top_p[index], p.uniform[index]);
  } else if (cluster_rank() == 0 && threadIdx.x == 0) {
    constexpr int64_t kNaN = 0x7ff8000000000000;  // 0 / 0: the probabilities of the row
    p.out[index] = 0;
    p.site.report(DeviceAssert::probability, kNaN, 0, 0);
  }
  cluster_sync();
}

template <class T>
void sample_as(const TokenSampling& args, Stream stream) {
  const int blocks = has_clusters(stream.device.index) ? kMostBlocks : 1;
  const int64_t vocab = args.logits.size(1), chunk = (vocab + blocks - 1) / blocks;
  const bool held = chunk * int64_t{sizeof(T)} <= kMostHeld;
  const Problem<T> p{.out = args.out.as<int64_t>(),
                     .logits = args.logits.as<const T>(),
                     .temperature = args.temperature.as<const float>(),
                     .top_p = args.top_p.as<const float>(),
                     .top_k = args.top_k.as<const int32_t>(),
                     .uniform = args.uniform.as<const double>(),
                     .step = args.logits.stride(0),
                     .vocab = static_cast<int32_t>(vocab),
                     .chunk = static_cast<int32_t>(chunk),
                     .held = held,
                     .site = AssertSite(stream.device.index, running_or("sample_tokens"))};
  allow_shared_once<sample_rows<T>>(stream.device.index, kMostHeld);
  const lorry::cuda::Shape shape{.grid = {static_cast<unsigned>(args.out.numel() * blocks)},
                                 .block = {kThreads},
                                 .shared_bytes = static_cast<size_t>(held ? chunk * int64_t{sizeof(T)} : 0),
                                 .cluster = {static_cast<unsigned>(blocks), 1, 1}};
  lorry::cuda::launch(stream, shape, sample_rows<T>, p, blocks);
}

void sample(const TokenSampling& args, Stream stream) {
  switch (args.logits.dtype) {
    case kF16:
      return sample_as<Float16>(args, stream);
    case kBF16:
      return sample_as<BFloat16>(args, stream);
    default:
      return sample_as<float>(args, stream);
  }
}

// ---- penalty --------------------------------------------------------------------------------------------------------

constexpr int kPenaltyThreads = 256, kPenaltyEach = 4;

template <class T>
struct PenaltyProblem {
  T* out;
  const T* logits;
  const bool* seen;
  const int32_t* slots;
  const float* penalty;
  int64_t step, seen_step;  ///< from row to row
  int32_t vocab, sequences;
  AssertSite site;

  void addresses(auto& visit) const { visit(out, logits, seen, slots, penalty); }
};

/// A block of column x takes kPenaltyThreads * kPenaltyEach logits of a row.
template <class T>
__global__ __launch_bounds__(kPenaltyThreads) void penalise_rows(const __grid_constant__ PenaltyProblem<T> p) {
  lorry::cuda::begin_programmatic();
  using C = Accumulate<T>;
  const int64_t row = blockIdx.x;
  const int32_t slot = p.slots[row];
  if (slot >= p.sequences && threadIdx.x == 0 && blockIdx.y == 0)
    p.site.report(DeviceAssert::index, slot, 0, p.sequences);
  const bool* const seen = slot >= 0 && slot < p.sequences ? p.seen + slot * p.seen_step : nullptr;
  const C by = static_cast<C>(p.penalty[row]);
  const int32_t first = static_cast<int32_t>(blockIdx.y * kPenaltyThreads * kPenaltyEach + threadIdx.x);
#pragma unroll
  for (int k = 0; k < kPenaltyEach; ++k) {
    const int32_t i = first + k * kPenaltyThreads;
    if (i >= p.vocab) continue;
    const T logit = p.logits[row * p.step + i];
    const C x = static_cast<C>(logit);
    p.out[row * p.vocab + i] = seen != nullptr && seen[i] ? static_cast<T>(x > 0 ? x / by : x * by) : logit;
  }
}

void penalise(const TokenPenalty& args, Stream stream) {
  const int64_t n = args.out.size(0), vocab = args.out.size(1), columns = kPenaltyThreads * kPenaltyEach;
  if (n * vocab == 0) return;
  visit_floating(args.out.dtype, [&]<class T>(Type<T>) {
    const PenaltyProblem<T> p{.out = args.out.as<T>(),
                              .logits = args.logits.as<const T>(),
                              .seen = args.seen.as<const bool>(),
                              .slots = args.slots.as<const int32_t>(),
                              .penalty = args.penalty.as<const float>(),
                              .step = args.logits.stride(0),
                              .seen_step = args.seen.stride(0),
                              .vocab = static_cast<int32_t>(vocab),
                              .sequences = static_cast<int32_t>(args.seen.size(0)),
                              .site = AssertSite(stream.device.index, running_or("repetition_penalty"))};
    const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>((vocab + columns - 1) / columns));
    lorry::cuda::launch(stream, {.grid = grid, .block = kPenaltyThreads}, penalise_rows<T>, p);
  });
}

// ---- sequences ------------------------------------------------------------------------------------------------------

constexpr int kAdvanceThreads = 128;

struct AdvanceProblem {
  SequenceStep rows;
  int32_t n;
  AssertSite site;

  void addresses(auto& visit) const { rows.addresses(visit); }
};

/// A thread takes a row.
__global__ __launch_bounds__(kAdvanceThreads) void advance_rows(const __grid_constant__ AdvanceProblem p) {
  lorry::cuda::begin_programmatic();
  const int32_t row = static_cast<int32_t>(blockIdx.x * kAdvanceThreads + threadIdx.x);
  if (row >= p.n || p.rows.is_padding(row)) return;
  if (p.rows.marks_seen()) {
    const int64_t slot = p.rows.slots[row], token = p.rows.next[row];
    if (slot >= p.rows.sequences) return p.site.report(DeviceAssert::index, slot, 0, p.rows.sequences);
    if (token < 0 || token >= p.rows.vocab) return p.site.report(DeviceAssert::index, token, 0, p.rows.vocab);
  }
  p.rows.advance(row);
}

void advance(const SequenceAdvance& args, Stream stream) {
  const int64_t n = args.next.numel();
  const AdvanceProblem p{SequenceStep(args), static_cast<int32_t>(n),
                         AssertSite(stream.device.index, running_or("advance_sequences"))};
  const auto blocks = static_cast<unsigned>((n + kAdvanceThreads - 1) / kAdvanceThreads);
  lorry::cuda::launch(stream, {.grid = blocks, .block = kAdvanceThreads}, advance_rows, p);
}

}  // namespace

const TokenKernels& token_kernels() {
  static constexpr TokenKernels kKernels{.sample = sample, .penalise = penalise, .advance = advance};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
