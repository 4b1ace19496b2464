#pragma once

// Combining the partial results (cells) of a reduction: of the lanes of a warp, of the threads of a block, and of the
// blocks that share an output. The order of combination is fixed, so results do not depend on which thread or block
// finishes first.

#include <cstdint>
#include <type_traits>

#include "lorry/kernels/cuda/common/tickets.h"

namespace lorry::kernels::cuda {

/// The cell of the lane `offset` lanes higher in the warp.
template <class Cell>
__device__ __forceinline__ Cell shuffle_down(const Cell& cell, int offset) {
  struct Bits {
    uint32_t at[sizeof(Cell) / 4];
  };
  Bits words = __builtin_bit_cast(Bits, cell);
#pragma unroll
  for (uint32_t& word : words.at) word = __shfl_down_sync(0xffffffffu, word, offset);
  return __builtin_bit_cast(Cell, words);
}

/// Combines, in order, the cells of each group of `lanes` neighbouring threads (a power of two). Lane 0 of the group
/// returns the result. All threads of the block must call it.
template <class P>
__device__ typename P::Cell combine_lanes(const P& end, typename P::Cell cell, int lanes) {
  using Cell = typename P::Cell;
  for (int offset = 1; offset < min(lanes, 32); offset *= 2) end.combine(cell, shuffle_down(cell, offset));
  if (lanes <= 32) return cell;
  __shared__ alignas(16) unsigned char memory[32 * sizeof(Cell)];
  Cell* const warps = reinterpret_cast<Cell*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  if (threadIdx.x % 32 == 0) warps[warp] = cell;
  __syncthreads();
  if (lane < 32) {  // the first warp of the group
    if (lane < lanes / 32) cell = warps[warp + lane];
    for (int offset = 1; offset < lanes / 32; offset *= 2) end.combine(cell, shuffle_down(cell, offset));
  }
  return cell;
}

inline constexpr int kSpread = 256;  // threads of the general kernel, and the maximum of blocks that share outputs

/// For a block as `slots` outputs x `lanes` threads: lane 0 of each output returns the combination of its cells.
template <class End>
__device__ typename End::Cell combine_spread(const End& end, typename End::Cell cell, int lane, int slot, int lanes,
                                             int slots) {
  using Cell = typename End::Cell;
  __shared__ alignas(16) unsigned char memory[kSpread * sizeof(Cell)];
  Cell* const cells = reinterpret_cast<Cell*>(memory);
  cells[lane * slots + slot] = cell;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) end.combine(cells[lane * slots + slot], cells[(lane + half) * slots + slot]);
  }
  return cells[lane * slots + slot];
}

/// Shared by the blocks of one output, which differ in y and z.
template <class Cell>
struct Parts {
  Cell* cells;        ///< [parts, outputs]; null if there is one part
  uint32_t* tickets;  ///< one per x
  int32_t count;

  void addresses(auto& visit) const { visit(cells, tickets); }
};

/// Stores a block's result: to the output, or to the partial cells if there are other parts.
template <class P>
__device__ __forceinline__ void leave(const P& policy, const Parts<typename P::Cell>& parts, int64_t outputs,
                                      int64_t output, int64_t offset, const typename P::Cell& cell) {
  if (parts.cells != nullptr) {
    parts.cells[(blockIdx.z * int64_t{gridDim.y} + blockIdx.y) * outputs + output] = cell;
  } else {
    policy.finish(offset, cell);
  }
}

/// Reads a cell written by another block of this launch, bypassing this multiprocessor's cache.
template <class Cell>
__device__ __forceinline__ Cell load_left(const Cell* from) {
  using Word = std::conditional_t<sizeof(Cell) % 8 == 0 && alignof(Cell) >= 8, unsigned long long, unsigned>;
  struct Bits {
    Word at[sizeof(Cell) / sizeof(Word)];
  } words;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Cell) / sizeof(Word)); ++i)
    words.at[i] = __ldcg(reinterpret_cast<const Word*>(from) + i);
  return __builtin_bit_cast(Cell, words);
}

/// Called after a block has stored its cells of outputs `first` to `first + count`: the last block to do so combines
/// them. offset_of(output): the offset of an output. All threads of the block must call it; with parts, their number is
/// a power of two and at most kSpread.
template <class P, class F>
__device__ __forceinline__ void combine_parts(const P& policy, const Parts<typename P::Cell>& parts, int64_t outputs,
                                              int64_t first, int count, F&& offset_of) {
  if (parts.cells == nullptr || !is_last_block(&parts.tickets[blockIdx.x], gridDim.y * gridDim.z)) return;
  const int threads = static_cast<int>(blockDim.x), t = static_cast<int>(threadIdx.x);
  const int slots = min(threads, count > 1 ? 1 << (32 - __clz(count - 1)) : 1), lanes = threads / slots,
            slot = t & (slots - 1), lane = t / slots;
  for (int begin = 0; begin < count; begin += slots) {
    const bool mine = begin + slot < count;
    const int64_t output = first + begin + slot;
    typename P::Cell cell = policy.identity();
    if (mine) {
#pragma unroll 4
      for (int part = lane; part < parts.count; part += lanes)
        policy.combine(cell, load_left(&parts.cells[part * outputs + output]));
    }
    if (lanes > 1) cell = combine_spread(policy, cell, lane, slot, lanes, slots);  // then there is one turn
    if (mine && lane == 0) policy.finish(offset_of(output), cell);
  }
}

}  // namespace lorry::kernels::cuda
