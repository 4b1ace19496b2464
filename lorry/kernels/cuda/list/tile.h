#pragma once

// Tiles: how an entry of a list is split. If skipping the same number of elements, the *head*, aligns all arrays of the
// entry for vector access, tiles start after the head, and the first tile includes it.

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::kernels::cuda {

/// No number of skipped elements aligns all arrays.
inline constexpr uint8_t kNoHead = 255;

/// Combines `head` with the head that one array needs, given its address and the bytes of an element and of a run.
/// Start with kAnyHead.
inline constexpr int kAnyHead = -1;
inline int join_head(int head, const void* address, int element_bytes, int run_bytes) {
  const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(address) % static_cast<unsigned>(run_bytes));
  const int missing = past == 0 ? 0 : run_bytes - past;
  const int own = missing % element_bytes == 0 ? missing / element_bytes : kNoHead;
  return head == kAnyHead || head == own ? own : kNoHead;
}

/// The number of tiles of `tile` elements in an entry of `count` > 0 elements.
inline int64_t tiles_of(int64_t count, uint8_t head, int tile) {
  const int64_t aligned = count - (head == kNoHead ? 0 : head);
  return aligned <= tile ? 1 : (aligned + tile - 1) / tile;
}

/// A tile's elements, counted from its first: [0, runs) and [rest, count) are accessed one by one, [runs, rest) in
/// runs. A warp goes from one row of runs to the next, `apart` elements further.
struct Tile {
  int64_t first;
  int runs, rest, count, apart;
};

LORRY_HOST_DEVICE inline Tile tile_at(int64_t tile, int tile_elements, int run_length, int row, int64_t count,
                                      uint8_t head) {
  const int lead = head == kNoHead ? 0 : head;
  const int64_t first = tile == 0 ? 0 : lead + tile * tile_elements, after = lead + (tile + 1) * tile_elements;
  const int here = static_cast<int>((count < after ? count : after) - first);
  int runs = tile == 0 ? lead : 0;
  if (head == kNoHead || runs > here) runs = here;
  return {first, runs, runs + (here - runs) / run_length * run_length, here, row};
}

/// The part of `warp` when `warps` warps share the same number of whole tiles, from `tile` on, row by row. Memory is
/// faster when neighbouring rows are read at the same time.
LORRY_HOST_DEVICE inline Tile interleaved_at(int64_t tile, int tile_elements, int row, int warp, int warps,
                                             uint8_t head) {
  const int count = warps * tile_elements - warp * row;
  return {head + tile * tile_elements + warp * row, 0, count, count, warps * row};
}
/// Whether there are enough whole tiles for that.
LORRY_HOST_DEVICE inline bool can_interleave(int64_t tile, int tile_elements, int warps, int64_t count, uint8_t head) {
  return tile > 0 && head != kNoHead && head + (tile + warps) * tile_elements <= count;
}

}  // namespace lorry::kernels::cuda
