#pragma once

// Prefix sums in one pass over memory: within a block by shuffles, between blocks by reading the sums that earlier
// blocks have published (decoupled look-back: Merrill, Garland 2016). Integers only, so the order of additions has no
// effect.

#include <cstdint>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {

inline constexpr int kPrefixThreads = 256;
inline constexpr int kPrefixWarps = kPrefixThreads / 32;

/// The tiles of one pass; a block processes a tile. Tiles are assigned in the order in which blocks start, so the
/// blocks of earlier tiles are running or done, and waiting for them terminates. Pass Tiles to the kernel by value.
class Tiles {
 public:
  explicit Tiles(uint64_t* words) : words_(words) {}
  void addresses(auto& visit) const { visit(words_); }
  static int64_t bytes(int64_t tiles) { return (tiles + 1) * static_cast<int64_t>(sizeof(uint64_t)); }

#ifdef __CUDACC__
  /// This block's tile. All threads must call it, once.
  __device__ int64_t take() const {
    __shared__ int64_t tile;
    if (threadIdx.x == 0) tile = static_cast<int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(words_), 1ull));
    __syncthreads();
    return tile;
  }

  /// The sum of all tiles before this one, whose own sum must be below 2^62. The whole first warp of the block must
  /// call it.
  __device__ uint64_t before(int64_t tile, uint64_t own) const {
    const int lane = static_cast<int>(threadIdx.x);
    if (tile == 0) {
      if (lane == 0) publish(0, own, kTotal);
      return 0;
    }
    if (lane == 0) publish(tile, own, kOwn);
    uint64_t sum = 0;
    for (int64_t at = tile - 1 - lane;; at -= 32) {
      // Lane 0 reads the nearest tile. Before the first tile the sum is 0, and final.
      uint64_t word;
      do word = at >= 0 ? see(at) : kTotal;
      while (__any_sync(~0u, (word & kState) == kNothing));
      const unsigned totals = __ballot_sync(~0u, (word & kState) == kTotal);
      const int last = totals != 0 ? __ffs(static_cast<int>(totals)) - 1 : 31;
      uint64_t part = lane <= last ? word >> 2 : 0;
      for (int step = 16; step > 0; step /= 2) part += __shfl_xor_sync(~0u, part, step);
      sum += part;
      if (totals != 0) break;
    }
    if (lane == 0) publish(tile, sum + own, kTotal);
    return sum;
  }
#endif

 private:
  /// What a word contains above its two lowest bits: nothing yet, the tile's own sum, or the sum up to and including
  /// the tile.
  enum State : uint64_t { kNothing = 0, kOwn = 1, kTotal = 2, kState = 3 };

#ifdef __CUDACC__
  // A word is written and read as a whole, so value and state always match, and no other memory needs to be ordered.
  __device__ void publish(int64_t tile, uint64_t sum, State state) const {
    *static_cast<volatile uint64_t*>(words_ + 1 + tile) = sum << 2 | state;
  }
  __device__ uint64_t see(int64_t tile) const { return *static_cast<volatile uint64_t*>(words_ + 1 + tile); }
#endif

  uint64_t* words_;  ///< [0] counts assigned tiles
};

/// The memory of Tiles, initialised for one launch of `count` blocks.
class TileMemory {
 public:
  TileMemory(int64_t count, Stream stream) : memory_(Tiles::bytes(count), stream) {
    lorry::cuda::fill_bytes(stream, memory_.data(), 0, Tiles::bytes(count));
  }
  Tiles tiles() const { return Tiles(memory_.as<uint64_t>()); }

 private:
  Scratch memory_;
};

#ifdef __CUDACC__
/// The sum over the threads before this one in a block of kPrefixThreads, and in `all` the sum over all threads. All
/// threads must call it. Four counts that sum to less than 2^16 may be packed into one number.
__device__ __forceinline__ uint64_t block_prefix(uint64_t own, uint64_t& all) {
  __shared__ uint64_t warps[kPrefixWarps];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = own;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const uint64_t left = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  uint64_t before = 0;
  all = 0;
#pragma unroll
  for (unsigned w = 0; w < kPrefixWarps; ++w) {
    before += w < warp ? warps[w] : 0;
    all += warps[w];
  }
  return before + sum - own;
}
/// One of four counts packed into a number.
__device__ __forceinline__ uint32_t count_at(uint64_t counts, int k) {
  return static_cast<uint32_t>(counts >> (16 * k)) & 0xffffu;
}
#endif

}  // namespace lorry::kernels::cuda
