// Sampling that orders or searches: permutations and multinomial draws.

#include <algorithm>
#include <bit>

#include "lorry/base/error.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/cuda/sort/radix.h"
#include "lorry/kernels/cuda/table.h"
#include "lorry/kernels/random.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kWholeWarp = 0xffffffffu;

/// The 64-bit word of element i, in a draw of two words per element.
__device__ uint64_t word64(RandomKey key, int64_t i) {
  const formula::Words4 words = formula::random_block(key, static_cast<uint64_t>(i) / 2);
  return (i & 1) != 0 ? static_cast<uint64_t>(words.word[3]) << 32 | words.word[2]
                      : static_cast<uint64_t>(words.word[1]) << 32 | words.word[0];
}

__device__ double unit64(RandomKey key, int64_t i) {
  const uint64_t word = word64(key, i);
  return formula::unit_f64(static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32));
}

__device__ __forceinline__ int64_t thread_position() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

lorry::cuda::Shape shape_for(int64_t items, Stream stream) {
  return {lorry::cuda::blocks_for(items, kThreads, stream.device.index), kThreads};
}

/// The maximum number of pairs sorted at once.
constexpr int64_t kMostPairs = UINT32_MAX;

// ---- permutation ----------------------------------------------------------------------------------------------------

/// keys[i] = the upper `bits` bits of element i's word.
__global__ void __launch_bounds__(kThreads)
    make_keys(uint32_t* keys, uint32_t* positions, int64_t n, int bits, RandomKey key) {
  lorry::cuda::begin_programmatic();
  for (int64_t i = thread_position() * 2; i < n; i += thread_count() * 2) {
    const formula::Words4 w = formula::random_block(key, static_cast<uint64_t>(i) / 2);
    for (int k = 0; k < 2; ++k) {
      if (i + k == n) break;
      keys[i + k] = w.word[2 * k + 1] >> (32 - bits);
      positions[i + k] = static_cast<uint32_t>(i + k);
    }
  }
}

/// Completes the order of words that are sorted by their upper bits. Among words with equal upper bits, a word moves
/// forward by the number of smaller words after it and back by the number of larger words before it. Words are
/// generated again instead of being stored.
__global__ void __launch_bounds__(kThreads)
    settle(int64_t* out, const uint32_t* keys, const uint32_t* positions, int64_t n, RandomKey key) {
  lorry::cuda::begin_programmatic();
  for (int64_t i = thread_position(); i < n; i += thread_count()) {
    const uint32_t mine = keys[i];
    int64_t to = i;
    if ((i > 0 && keys[i - 1] == mine) || (i + 1 < n && keys[i + 1] == mine)) {
      const uint64_t word = word64(key, positions[i]);
      for (int64_t j = i - 1; j >= 0 && keys[j] == mine; --j) to -= word64(key, positions[j]) > word;
      for (int64_t j = i + 1; j < n && keys[j] == mine; ++j) to += word64(key, positions[j]) < word;
    }
    out[to] = positions[i];
  }
}

// ---- multinomial with replacement -----------------------------------------------------------------------------------

/// The running sums of each row, added in sequence like on the CPU, and the last column with a positive weight. One
/// warp per row: its time is the chain of additions (about 10 cycles each), so columns of weight 0, which change no
/// sum, are skipped. Reads and writes 8 bytes per weight.
__global__ void __launch_bounds__(kThreads)
    running_sums(double* sums, int64_t* last, const double* weights, int64_t rows, int64_t columns) {
  lorry::cuda::begin_programmatic();
  constexpr int kAhead = 4;  // loads in flight
  const int lane = threadIdx.x % 32;
  for (int64_t row = thread_position() / 32; row < rows; row += thread_count() / 32) {
    const double* const weight = weights + row * columns;
    double* const to = sums + row * columns;
    double sum = 0;
    int64_t last_positive = 0;
    double next[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) next[a] = a * 32 + lane < columns ? weight[a * 32 + lane] : 0.0;
    for (int64_t first = 0; first < columns; first += kAhead * 32) {
      double x[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        x[a] = next[a];
        const int64_t c = first + (kAhead + a) * 32 + lane;
        next[a] = c < columns ? weight[c] : 0.0;
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int64_t chunk = first + a * 32;
        const unsigned positive = __ballot_sync(kWholeWarp, x[a] > 0);
        double mine = sum;  // for a lane before the first positive weight
        if (positive == kWholeWarp) {
#pragma unroll
          for (int k = 0; k < 32; ++k) {
            sum += __shfl_sync(kWholeWarp, x[a], k);
            if (lane >= k) mine = sum;
          }
        } else {
          for (unsigned rest = positive; rest != 0; rest &= rest - 1) {
            const int k = __ffs(static_cast<int>(rest)) - 1;
            sum += __shfl_sync(kWholeWarp, x[a], k);
            if (lane >= k) mine = sum;
          }
        }
        if (chunk + lane < columns) to[chunk + lane] = mine;
        if (positive != 0) last_positive = chunk + 31 - __clz(static_cast<int>(positive));
      }
    }
    if (lane == 0) last[row] = last_positive;
  }
}

/// The first column whose running sum exceeds u times the row's sum. If the product rounds up to the sum, the last
/// column with a positive weight.
__global__ void __launch_bounds__(kThreads) pick(int64_t* out, const double* sums, const int64_t* last, int64_t rows,
                                                 int64_t draws, int64_t columns, RandomKey key) {
  lorry::cuda::begin_programmatic();
  for (int64_t i = thread_position(); i < rows * draws; i += thread_count()) {
    const int64_t row = i / draws;
    const double* const sum = sums + row * columns;
    const double point = unit64(key, i) * sum[columns - 1];
    int64_t low = 0, high = columns;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (sum[middle] > point) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    out[i] = low < last[row] ? low : last[row];
  }
}

// ---- multinomial without replacement --------------------------------------------------------------------------------

/// -ln(u) / weight of element i; infinite for a weight of 0.
__device__ double score(const double* weights, int64_t i, RandomKey key) {
  const double u = unit64(key, i) + 0x1p-54;                                      // never 0
  return (weights[i] > 0 ? -formula::log_unit(u) / weights[i] : HUGE_VAL) + 0.0;  // -0 becomes 0
}

/// The columns of the `draws` smallest scores of each row, ties by column, by one search per draw: for few draws. One
/// block per row; reads 8 bytes per weight and draw. Scores are compared as bits, which have the same order.
__global__ void __launch_bounds__(1024)
    select_smallest(int64_t* out, const double* weights, int64_t draws, int64_t columns, RandomKey key) {
  lorry::cuda::begin_programmatic();
  __shared__ uint64_t scores[32];
  __shared__ int64_t where[32];
  const int64_t row = blockIdx.x;
  const auto before = [](uint64_t a, int64_t i, uint64_t b, int64_t j) { return a != b ? a < b : i < j; };
  uint64_t taken = 0;
  int64_t taken_at = -1;
  for (int64_t k = 0; k < draws; ++k) {
    uint64_t best = UINT64_MAX;
    int64_t best_at = INT64_MAX;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      const auto s = static_cast<uint64_t>(__double_as_longlong(score(weights, row * columns + c, key)));
      if (before(taken, taken_at, s, c) && before(s, c, best, best_at)) best = s, best_at = c;
    }
    for (int step = 16; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(kWholeWarp, best, step);
      const int64_t other_at = __shfl_xor_sync(kWholeWarp, best_at, step);
      if (before(other, other_at, best, best_at)) best = other, best_at = other_at;
    }
    if (threadIdx.x % 32 == 0) scores[threadIdx.x / 32] = best, where[threadIdx.x / 32] = best_at;
    __syncthreads();
    taken = scores[0], taken_at = where[0];
    for (int w = 1; w < static_cast<int>(blockDim.x / 32); ++w)
      if (before(scores[w], where[w], taken, taken_at)) taken = scores[w], taken_at = where[w];
    if (threadIdx.x == 0) out[row * draws + k] = taken_at;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    fill_scores(double* scores, const double* weights, int64_t count, RandomKey key) {
  lorry::cuda::begin_programmatic();
  for (int64_t i = thread_position(); i < count; i += thread_count()) scores[i] = score(weights, i, key);
}

/// The same for many draws.
void take_smallest(const Array& out, const double* weights, int64_t columns, RandomKey key, Stream stream) {
  require<ShapeError>(columns <= kMostPairs,
                      "too many columns to draw without replacement on cuda; got {}; expected at most {}", columns,
                      kMostPairs);
  const int64_t rows = out.size(0), count = rows * columns;
  const Scratch scores(count * int64_t{sizeof(double)}, stream), taken(out.numel() * int64_t{sizeof(double)}, stream);
  lorry::cuda::launch(stream, shape_for(count, stream), fill_scores, scores.as<double>(), weights, count, key);
  sort_kernels().topk({taken.data(), kF64, out.layout}, out, {scores.data(), kF64, Layout::contiguous({rows, columns})},
                      false, stream);
}

}  // namespace

// The words are uniform, so slightly more bits than the numbers have distinguish nearly all of them. A sort by these
// bits takes a quarter of the time of a sort by whole words. Then neighbours with equal bits are put in order.
void permutation(const Array& out, RandomKey key, Stream stream) {
  const int64_t n = out.numel();
  if (n == 0) return;
  require<ShapeError>(n <= kMostPairs, "too many elements to order on cuda; got {}; expected at most {}", n,
                      kMostPairs);
  const int bits = std::min(32, (static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) + 15) / 8 * 8);
  Pairs<uint32_t> pairs(n, stream);
  lorry::cuda::launch(stream, shape_for((n + 1) / 2, stream), make_keys, pairs.keys(), pairs.values(), n, bits, key);
  radix_sort(pairs, bits, stream);
  lorry::cuda::launch(stream, shape_for(n, stream), settle, out.as<int64_t>(), pairs.keys(), pairs.values(), n, key);
}

void multinomial(const Array& out, const Array& weights, bool replacement, RandomKey key, Stream stream) {
  constexpr int64_t kFewScores = 4096;  // which a block computes in four turns
  const int64_t rows = out.size(0), draws = out.size(1), columns = weights.size(1);
  if (rows * draws == 0) return;
  const double* const from = weights.as<double>();
  int64_t* const to = out.as<int64_t>();
  if (replacement) {
    const Scratch sums(rows * columns * int64_t{sizeof(double)}, stream), last(rows * int64_t{sizeof(int64_t)}, stream);
    lorry::cuda::launch(stream, shape_for(rows * 32, stream), running_sums, sums.as<double>(), last.as<int64_t>(), from,
                        rows, columns);
    lorry::cuda::launch(stream, shape_for(rows * draws, stream), pick, to, sums.as<const double>(),
                        last.as<const int64_t>(), rows, draws, columns, key);
  } else if (draws * columns <= kFewScores && rows <= INT32_MAX) {
    const unsigned block = static_cast<unsigned>(std::clamp<int64_t>((columns + 31) / 32 * 32, 32, 1024));
    lorry::cuda::launch(stream, {static_cast<unsigned>(rows), block}, select_smallest, to, from, draws, columns, key);
  } else {
    take_smallest(out, from, columns, key, stream);
  }
}

}  // namespace lorry::kernels::cuda
