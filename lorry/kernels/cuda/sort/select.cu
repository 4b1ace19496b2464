// Choosing the first k elements of chunks that are too long to be sorted in a block. A block finds the key of the last
// of them digit by digit, from the top (radix select): it counts the digits of the keys that agree with those above,
// and the counts tell which digit is that of the k-th key. It stops as soon as all keys that agree are among the first
// k; random keys of f32 take two digits. Then it reads the chunk once more and writes what it chose. So a chunk is read
// from memory once, and a few times from the second-level cache.

#include "lorry/kernels/cuda/sort/select.h"

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/sort/keys.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kEach = 8;  ///< items of a thread in a turn
constexpr int kTile = kThreads * kEach;
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
constexpr unsigned kWholeWarp = 0xffffffffu;
static_assert(kWarps == 32 && kDigits == 2 * kThreads);

/// Chosen are the keys whose `fixed` bits are below `prefix`, and the first `take` of the `equal` keys whose fixed bits
/// are `prefix`.
template <class Key>
struct Bound {
  Key fixed, prefix;
  uint32_t take, equal;
};

/// The digit of the last key that is chosen.
struct Digit {
  uint32_t digit, take, equal;
};

struct Memory {
  uint32_t digits[kDigits];
  uint32_t warps[2][kWarps];
  Digit last;
};

__device__ __forceinline__ uint32_t warp_sum(uint32_t value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kWholeWarp, value, step);
  return value;
}

/// A chunk of a row as a block reads it, in tiles: a warp has kEach * 32 neighbouring items of a tile, its lanes take
/// them in turn.
template <class Key>
struct Chunk {
  const Keys<Key>& keys;
  int64_t row;             ///< the row's first element
  const uint32_t* subset;  ///< null: items are neighbours from `first` on
  uint32_t first, count;

  /// The positions in the row and the keys of a thread's items. Items beyond the chunk repeat its last.
  __device__ __forceinline__ void read(uint32_t tile, uint32_t (&at)[kEach], Key (&to)[kEach]) const {
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const uint32_t i = min(item(tile, u), count - 1);
      at[u] = subset == nullptr ? first + i : subset[i];
    }
    keys.read(row, at, to);
  }
  __device__ __forceinline__ bool has(uint32_t tile, int u) const { return item(tile, u) < count; }

 private:
  static __device__ __forceinline__ uint32_t item(uint32_t tile, int u) {
    return tile + (threadIdx.x / 32 * kEach + u) * 32 + threadIdx.x % 32;
  }
};

/// Counts the digits above `shift` of the keys that agree with the bound.
template <class Key>
__device__ void count_digits(const Chunk<Key>& chunk, const Bound<Key>& bound, int shift, Key mask, Memory& memory) {
  for (int i = threadIdx.x; i < kDigits; i += kThreads) memory.digits[i] = 0;
  __syncthreads();
  for (uint32_t tile = 0; tile < chunk.count; tile += kTile) {
    uint32_t at[kEach];
    Key key[kEach];
    chunk.read(tile, at, key);
#pragma unroll
    for (int u = 0; u < kEach; ++u)
      if (chunk.has(tile, u) && (key[u] & bound.fixed) == bound.prefix)
        atomicAdd(&memory.digits[key[u] >> shift & mask], 1u);
  }
  __syncthreads();
}

/// The digit of the key number `take` in order, counted from 1.
__device__ Digit find_digit(uint32_t take, Memory& memory) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t low = memory.digits[2 * threadIdx.x], high = memory.digits[2 * threadIdx.x + 1];
  uint32_t sum = low + high;  // of the threads of the warp up to this one
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const uint32_t left = __shfl_up_sync(kWholeWarp, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) memory.warps[0][warp] = sum;
  __syncthreads();
  const uint32_t before = warp_sum(lane < warp ? memory.warps[0][lane] : 0) + sum - low - high;
  if (before < take && take <= before + low) memory.last = {2 * threadIdx.x, take - before, low};
  if (before + low < take && take <= before + low + high)
    memory.last = {2 * threadIdx.x + 1, take - before - low, high};
  __syncthreads();
  return memory.last;
}

/// The bound of the first `take` keys, and no others.
template <class Key>
__device__ Bound<Key> find_bound(const Chunk<Key>& chunk, uint32_t take, int bits, Memory& memory) {
  Bound<Key> bound{0, 0, take, chunk.count};
  for (int shift = bits; shift > 0 && bound.take < bound.equal;) {
    const int width = min(kDigitBits, shift);
    shift -= width;
    const Key mask = (Key(1) << width) - 1;
    count_digits(chunk, bound, shift, mask, memory);
    const Digit last = find_digit(bound.take, memory);
    bound = {bound.fixed | mask << shift, bound.prefix | Key(last.digit) << shift, last.take, last.equal};
  }
  return bound;
}

/// Writes the positions of the chosen items, in the order of the items.
template <class Key>
__device__ void write_chosen(uint32_t* to, const Chunk<Key>& chunk, const Bound<Key>& bound, Memory& memory) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, lower_lanes = (1u << lane) - 1;
  uint32_t below = 0, equal = 0;  // items of earlier tiles below the bound, and equal to it
  for (uint32_t tile = 0, turn = 0; tile < chunk.count; tile += kTile, turn ^= 1) {
    uint32_t at[kEach];
    Key key[kEach];
    chunk.read(tile, at, key);
    unsigned is_below[kEach], is_equal[kEach];  // a bit per lane
    uint32_t mine = 0;                          // of the warp: the number below, and in the upper half of those equal
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const Key fixed = key[u] & bound.fixed;
      is_below[u] = __ballot_sync(kWholeWarp, chunk.has(tile, u) && fixed < bound.prefix);
      is_equal[u] = __ballot_sync(kWholeWarp, chunk.has(tile, u) && fixed == bound.prefix);
      mine += __popc(is_below[u]) + (__popc(is_equal[u]) << 16);
    }
    if (lane == 0) memory.warps[turn][warp] = mine;
    __syncthreads();  // one a tile: the next tile uses the other half of `warps`
    const uint32_t others = memory.warps[turn][lane], all = warp_sum(others),
                   before = warp_sum(lane < warp ? others : 0);
    uint32_t below_here = below + (before & 0xffff), equal_here = equal + (before >> 16);
    if (mine != 0) {
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        const uint32_t earlier = equal_here + __popc(is_equal[u] & lower_lanes);
        if ((is_below[u] >> lane & 1) != 0 || ((is_equal[u] >> lane & 1) != 0 && earlier < bound.take))
          to[below_here + __popc(is_below[u] & lower_lanes) + min(earlier, bound.take)] = at[u];
        below_here += __popc(is_below[u]);
        equal_here += __popc(is_equal[u]);
      }
    }
    below += all & 0xffff;
    equal += all >> 16;
  }
}

/// One block per chunk. Blocks run over the chunks of all rows.
template <class Key>
__global__ void __launch_bounds__(kThreads)
    select_in_blocks(uint32_t* chosen, Keys<Key> keys, Chunks p, int64_t chunks, int64_t results_per_row, int bits) {
  lorry::cuda::begin_programmatic();
  __shared__ Memory memory;
  for (int64_t block = blockIdx.x; block < p.rows * chunks; block += gridDim.x) {
    const int64_t row = chunks == 1 ? block : block / chunks, number = block - row * chunks, first = number * p.chunk;
    const Chunk<Key> chunk{keys, row * p.length, p.subset == nullptr ? nullptr : p.subset + row * p.items + first,
                           static_cast<uint32_t>(first), static_cast<uint32_t>(min(p.chunk, p.items - first))};
    const Bound<Key> bound = find_bound(chunk, min(static_cast<uint32_t>(p.k), chunk.count), bits, memory);
    write_chosen(chosen + row * results_per_row + number * p.k, chunk, bound, memory);
    __syncthreads();  // the memory is reused for the next chunk
  }
}

}  // namespace

int64_t selection_chunk(const Chunks& round, int multiprocessors) {
  constexpr int64_t kMost = int64_t{1} << 16;  // so that the chunks that are read at a time stay in the cache
  const int64_t even = round.rows * round.items / (2 * multiprocessors) + 1,
                chunk = std::clamp(even, std::max(kBlockItems, 4 * round.k), kMost),
                chunks = (round.items + chunk - 1) / chunk;
  return (round.items + chunks - 1) / chunks;
}

void select_chunks(const Chunks& p, uint32_t* chosen, Stream stream) {
  if (p.rows * p.items == 0) return;
  const int64_t chunks = p.chunks();
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.rows * chunks, INT32_MAX));
  visit_key(p.x.dtype, [&]<class Key>(Type<Key>) {
    lorry::cuda::launch(stream, {blocks, kThreads}, select_in_blocks<Key>, chosen, Keys<Key>(p.x, p.descending), p,
                        chunks, p.results_per_row(), key_bits(p.x.dtype));
  });
}

}  // namespace lorry::kernels::cuda
