#include "lorry/memory/thread_bins.h"

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

constinit thread_local ThreadBinSet t_cache{};

namespace {
struct CacheCloser {
  ~CacheCloser() {
    t_cache.closed = true;
    for (ThreadBins& bins : t_cache.bins)
      if (bins.owner != nullptr) bins.owner->hand_in(bins);
  }
};
}  // namespace

void ThreadBinSet::open(CachingAllocator& owner, Home& home, int64_t budget, uint32_t epoch) {
  if (closed || find(&home) != nullptr) return;
  if (!registered) {
    static thread_local CacheCloser closer;
    registered = true;
  }
  ThreadBins* chosen = find(static_cast<const Home*>(nullptr));
  if (chosen == nullptr) {
    chosen = &bins[next_evicted++ % kHomes];
    chosen->owner->hand_in(*chosen);
  }
  chosen->owner = &owner;
  chosen->home = &home;
  chosen->stream = home.stream.handle;
  chosen->budget = budget;
  chosen->epoch = epoch;
}

}  // namespace lorry::memory
