#pragma once

// The allocator's lock-free path: free small blocks that each thread caches for the streams it allocates on.

#include <cstdint>

#include "lorry/memory/blocks.h"

namespace lorry::memory {

/// One thread's free small blocks of one home, and its net allocation since the last sync with the allocator.
struct ThreadBins {
  static constexpr int64_t kSyncAbove = 1 << 16;  // bytes: a larger net allocation is synced with the allocator at once

  CachingAllocator* owner;  // null: not in use
  Home* home;
  void* stream;
  int64_t budget;  // maximum bytes cached per size class
  uint32_t epoch;  // the allocator's when the bins were opened; if it has changed since, the cache is to be emptied
  Block* lists[kSmallClasses];
  int64_t bytes[kSmallClasses];  // in lists
  int64_t held, blocks;          // net allocation since the last sync: bytes and number of blocks

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
  /// Adds to the net allocation. Returns whether it must be synced with the allocator now.
  bool count(int64_t difference, int64_t block_difference) {
    held += difference;
    blocks += block_difference;
    return held > kSyncAbove || held < -kSyncAbove;
  }
};

/// A thread's bins, for the homes it uses most. It has no destructor, so it is still valid for tensors that are
/// released after the thread's other thread-local objects.
struct ThreadBinSet {
  static constexpr int kHomes = 8;
  ThreadBins bins[kHomes];
  int next_evicted;
  bool registered;  // blocks will be handed in at the thread's end
  bool closed;      // the thread is ending: cache nothing any more

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
  /// Opens bins for a home unless there are some; replaces others if all are in use. Does nothing if the thread is
  /// ending. The caller must not hold the allocator's lock.
  void open(CachingAllocator& owner, Home& home, int64_t budget, uint32_t epoch);
};

extern constinit thread_local ThreadBinSet t_cache;

}  // namespace lorry::memory
