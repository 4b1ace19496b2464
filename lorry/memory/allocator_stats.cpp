// What an allocator reports of itself.

#include <algorithm>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

Stats CachingAllocator::stats() {
  for (ThreadBins& bins : t_cache.bins)
    if (bins.owner == this) publish(bins);
  const std::scoped_lock lock(mutex_);
  return {.allocated = allocated_.load(std::memory_order_relaxed),
          .peak_allocated = peak_allocated_.load(std::memory_order_relaxed),
          .reserved = reserved_.load(std::memory_order_relaxed),
          .peak_reserved = peak_reserved_,
          .live_blocks = live_.load(std::memory_order_relaxed),
          .system_requests = system_requests_,
          .waiting = waiting_bytes_,
          .segments = segment_count_,
          .cache_bound = bound_,
          .retries = retries_};
}

void CachingAllocator::reset_peak() {
  const Stats now = stats();
  const std::scoped_lock lock(mutex_);
  peak_allocated_.store(now.allocated, std::memory_order_relaxed);
  peak_reserved_ = now.reserved;
}

std::vector<LiveBlock> CachingAllocator::snapshot() const {
  std::vector<LiveBlock> blocks;
  {
    const std::scoped_lock lock(mutex_);
    for (const Segment* s = segments_.head; s != nullptr; s = s->next)
      for (const Block* b = s->first; b != nullptr; b = b->after)
        if (const char* made_by = b->made_by.load(std::memory_order_relaxed)) blocks.push_back({b->size, made_by});
  }
  std::sort(blocks.begin(), blocks.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.bytes > b.bytes; });
  return blocks;
}

}  // namespace lorry::memory
