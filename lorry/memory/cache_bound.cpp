// The part of CachingAllocator that keeps the cache within its bound.

#include <algorithm>
#include <utility>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

void CachingAllocator::discard_free_pages(int64_t page, int64_t most) noexcept {
  for (Segment* segment = segments_.head; segment != nullptr; segment = segment->next)
    for (Block* block = segment->first; block != nullptr; block = block->after) {
      if (cached() <= most) return;
      if (!block->free || block->home->pool != 0 || block->size - block->absent < page) continue;
      const int64_t gone = provider_->discard(block->data, block->size, page);
      if (gone <= block->absent) continue;
      reserve(block->absent - gone);
      block->absent = gone;
    }
}

/// Returns free segments first, then pages of free blocks: first pages of the size that is cheap to return.
void CachingAllocator::trim_to(int64_t most) noexcept {
  for (Segment* segment = segments_.head; segment != nullptr && cached() > most;) {
    Segment* next = segment->next;
    const Block& block = *segment->first;
    if (block.free && block.whole_segment() && block.home->pool == 0) to_system(segment);
    segment = next;
  }
  for (const int64_t page : policy_.pages) discard_free_pages(page, most);
}

void CachingAllocator::trim_later() noexcept {
  trim_at_.store(std::max(bound_, cached() + std::max(bound_ / 16, kSmall)), std::memory_order_relaxed);
}

/// Trims to an eighth below the bound, so that one pass over all blocks lasts for many releases. Some memory cannot be
/// returned (other threads' bins, parts of pages, everything during a capture), so the cache may still exceed the bound
/// afterwards. Then the next pass waits until the cache has grown by a sixteenth of the bound.
void CachingAllocator::trim() noexcept {
  if (capturing()) return trim_later();
  const int64_t target = bound_ - bound_ / 8;
  trim_to(target);
  if (cached() > target) {
    for (ThreadBins& bins : t_cache.bins)
      if (bins.owner == this) empty(bins);
    epoch_.fetch_add(1, std::memory_order_relaxed);
    trim_to(target);
  }
  trim_later();
}

int64_t CachingAllocator::set_cache_bound(int64_t bytes) {
  const waits::Deferred told_after_the_lock;
  const std::scoped_lock lock(mutex_);
  trim_at_.store(bytes, std::memory_order_relaxed);
  const int64_t before = std::exchange(bound_, bytes);
  keep_within_bound();
  return before;
}

}  // namespace lorry::memory
