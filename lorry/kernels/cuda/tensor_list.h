#pragma once

// Lists of tensors in kernels: one launch works on all of them, in tiles of a fixed number of elements, a block a tile. The list
// travels by value among the kernel's arguments (up to 32 KB), so nothing is uploaded, nothing is waited for, and a captured graph
// keeps its own copy; a longer list takes several launches. A block finds its tensor by a binary search over the first tiles.
//
// Tiles are aligned: where one number of elements, the head, brings all of a tensor's arrays to addresses that a vector access
// may use, tiles start there, and the first tile takes the head as well. An odd start or length costs its own few elements the vector
// path and no others.

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::kernels::cuda {

/// The most tensors in a launch: 4 KB of arguments are the cheapest to pass (4.4 us a launch on an H200), 28 KB cost 3 us more.
inline constexpr int kShortList = 48, kLongList = 448;

/// No number of elements brings all arrays to a vector boundary.
inline constexpr uint8_t kNoHead = 255;

/// Joins to `head` what an array asks for: its address and the bytes of an element and of a run. Start with `head` at kAnyHead.
inline constexpr int kAnyHead = -1;
inline int join_head(int head, const void* address, int element_bytes, int run_bytes) {
  const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(address) % static_cast<unsigned>(run_bytes));
  const int missing = past == 0 ? 0 : run_bytes - past;
  const int own = missing % element_bytes == 0 ? missing / element_bytes : kNoHead;
  return head == kAnyHead || head == own ? own : kNoHead;
}

/// How many tiles of kTile elements a tensor of `count` > 0 has.
template <int kTile>
int64_t tiles_of(int64_t count, uint8_t head) {
  const int64_t aligned = count - (head == kNoHead ? 0 : head);
  return aligned <= kTile ? 1 : (aligned + kTile - 1) / kTile;
}

/// A tile's elements, counted from its first: [0, runs) and [rest, count) one by one, [runs, rest) in runs.
struct Tile {
  int64_t first;
  int runs, rest, count;
};

template <int kTile, int kRunLength>
LORRY_HOST_DEVICE inline Tile tile_at(int64_t tile, int64_t count, uint8_t head) {
  const int lead = head == kNoHead ? 0 : head;
  const int64_t first = tile == 0 ? 0 : lead + tile * kTile, after = lead + (tile + 1) * kTile;
  const int here = static_cast<int>((count < after ? count : after) - first);
  int runs = tile == 0 ? lead : 0;
  if (head == kNoHead || runs > here) runs = here;
  return {first, runs, runs + (here - runs) / kRunLength * kRunLength, here};
}

/// The entry that holds a tile: the last whose first tile is not beyond it. Entries stand in the order of their first tiles.
template <class Entry>
LORRY_HOST_DEVICE inline int entry_of(const Entry* entries, int count, uint32_t tile) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (entries[middle].first_tile <= tile ? low : high) = middle;
  }
  return low;
}

}  // namespace lorry::kernels::cuda
