#pragma once

// The way without a lock: free small blocks that a thread keeps for the streams it allocates on.

#include <cstdint>

#include "lorry/memory/blocks.h"

namespace lorry::memory {

/// One thread's free small blocks of one home, and what it has allocated less released there since it last told the
/// allocator.
struct ThreadBins {
  static constexpr int64_t kCountedLate = 1 << 16;  // the allocator hears of a difference at least this large at once

  CachingAllocator* owner;  // null: not in use
  Home* home;
  void* stream;
  int64_t budget;  // bytes kept of one class
  uint32_t epoch;  // of the allocator's calls to empty the cache: another one means that the blocks are to be handed in
  Block* lists[kSmallClasses];
  int64_t bytes[kSmallClasses];
  int64_t held, blocks;

  Block* take(int size_class) {
    Block* block = lists[size_class];
    if (block == nullptr) return nullptr;
    lists[size_class] = block->next;
    bytes[size_class] -= block->size;
    return block;
  }
  bool keep(Block* block) {
    const int c = small_class(block->size);
    if (bytes[c] >= budget) return false;
    block->next = lists[c];
    lists[c] = block;
    bytes[c] += block->size;
    return true;
  }
  /// True when it is time to tell the allocator.
  bool count(int64_t difference, int64_t block_difference) {
    held += difference;
    blocks += block_difference;
    return held > kCountedLate || held < -kCountedLate;
  }
};

/// One thread's bins, for the homes that it uses most. Plain data, so that tensors which outlive the thread's other
/// objects still find it valid.
struct ThreadBinSet {
  static constexpr int kHomes = 8;
  ThreadBins bins[kHomes];
  int next_evicted;
  bool registered;  // its hand-in at the thread's end is arranged
  bool closed;      // the thread is ending: keep nothing any more

  ThreadBins* find(const CachingAllocator* owner, const void* stream) {
    for (ThreadBins& b : bins)
      if (b.owner == owner && b.stream == stream) return &b;
    return nullptr;
  }
  ThreadBins* find(const Home* home) {
    for (ThreadBins& b : bins)
      if (b.home == home) return &b;
    return nullptr;
  }
  /// Makes bins for a home unless there are some, in the place of others where all are in use; not when the thread is
  /// ending. No lock may be held.
  void open(CachingAllocator& owner, Home& home, int64_t budget, uint32_t epoch);
};

extern constinit thread_local ThreadBinSet t_cache;

}  // namespace lorry::memory
