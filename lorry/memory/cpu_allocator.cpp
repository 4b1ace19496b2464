#include "lorry/memory/cpu_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "lorry/base/modes.h"
#include "lorry/memory/counters.h"
#include "lorry/memory/out_of_memory.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LORRY_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LORRY_ADDRESS_SANITIZER 1
#endif
#ifdef LORRY_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace lorry::memory {
namespace {

// AddressSanitizer is to see every block come and go, and to report a reach into what its size class adds to it.
#ifdef LORRY_ADDRESS_SANITIZER
constexpr bool kCaching = false;
void close_slack(void* data, int64_t requested, int64_t bytes) {
  __asan_poison_memory_region(static_cast<char*>(data) + requested, static_cast<size_t>(bytes - requested));
}
#else
constexpr bool kCaching = true;
void close_slack(void*, int64_t, int64_t) {}
#endif

constexpr int64_t kAlignment = 64;
constexpr int64_t kThreadCached = 64 << 10;   // larger blocks go through the shared bins
constexpr int64_t kThreadBudget = 256 << 10;  // bytes a thread keeps of one class
constexpr int64_t kCountedLate = 64 << 10;    // a thread adds to the shared counts when it is this far off
constexpr int64_t kHugePage = 2 << 20;

}  // namespace

/// One thread's free lists. Plain data, so that tensors which outlive the thread's other objects still find it valid.
struct ThreadCache {
  CpuAllocator::Free* lists[CpuAllocator::kClasses];
  int64_t bytes[CpuAllocator::kClasses];
  int64_t held, blocks;  // allocated minus released here since they were last added to the shared counts
  bool registered;  // its flush at the thread's end is arranged
  bool closed;      // the thread is ending: keep nothing any more

  void* take(int c) {
    CpuAllocator::Free* block = lists[c];
    if (block == nullptr) return nullptr;
    lists[c] = block->next;
    bytes[c] -= CpuAllocator::bytes_of(c);
    return block;
  }
  bool keep(void* data, int c) {
    if (closed || bytes[c] >= kThreadBudget) return false;
    lists[c] = new (data) CpuAllocator::Free{lists[c]};
    bytes[c] += CpuAllocator::bytes_of(c);
    return true;
  }
  void flush() {
    for (int c = 0; c < CpuAllocator::kClasses; ++c)
      while (void* block = take(c)) CpuAllocator::instance().to_bins(block, c);
  }
  void flush_at_thread_exit();
};

namespace {

constinit thread_local ThreadCache t_cache{};

struct CacheCloser {
  ~CacheCloser() {
    CpuAllocator::instance().publish_counts();
    t_cache.closed = true;
    t_cache.registered = false;  // what is released from now on is counted at once
    t_cache.flush();
  }
};

}  // namespace

void ThreadCache::flush_at_thread_exit() {
  static thread_local CacheCloser closer;
  registered = true;
}

CpuAllocator& CpuAllocator::instance() {
  static CpuAllocator& allocator = *new CpuAllocator;  // never destroyed: tensors may outlive static objects
  return allocator;
}

int CpuAllocator::class_of(int64_t bytes) {
  if (bytes <= 1024) return static_cast<int>((bytes + 63) / 64) - 1;
  const int power = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  const int64_t step = int64_t{1} << (power - 2);
  return 16 + (power - 10) * 4 + static_cast<int>((bytes - 1 - (int64_t{1} << power)) / step);
}

int64_t CpuAllocator::bytes_of(int size_class) {
  if (size_class < 16) return (size_class + 1) * 64;
  const int power = 10 + (size_class - 16) / 4, quarter = (size_class - 16) % 4;
  return (int64_t{1} << power) + (quarter + 1) * (int64_t{1} << (power - 2));
}

void* CpuAllocator::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes < 0 || bytes > (int64_t{1} << 52)) out_of_memory(bytes);
  const int c = class_of(bytes);
  void* data = bytes <= kThreadCached ? t_cache.take(c) : nullptr;
  if (data == nullptr) data = from_bins(c);
  if (data == nullptr) data = from_system(c, bytes);
  count(bytes_of(c), 1);
  if (bytes >= kTrackedBytes) {
    const std::scoped_lock lock(mutex_);
    tracked_[data] = {bytes_of(c), t_operator == nullptr ? "" : t_operator};
  }
  return data;
}

void CpuAllocator::release(void* data, int64_t bytes) noexcept {
  if (data == nullptr) return;
  const int c = class_of(bytes);
  count(-bytes_of(c), -1);
  if (bytes >= kTrackedBytes) {
    const std::scoped_lock lock(mutex_);
    tracked_.erase(data);
  }
  if (!kCaching) return to_system(data, c);
  if (bytes > kThreadCached || !t_cache.keep(data, c)) to_bins(data, c);
}

void CpuAllocator::count(int64_t bytes, int64_t blocks) {
  t_cache.held += bytes;
  t_cache.blocks += blocks;
  if (t_cache.held > kCountedLate || t_cache.held < -kCountedLate || !t_cache.registered) publish_counts();
}

void CpuAllocator::publish_counts() const {
  if (!t_cache.registered && !t_cache.closed) t_cache.flush_at_thread_exit();
  const int64_t held = std::exchange(t_cache.held, 0);
  raise_to(peak_allocated_, allocated_.fetch_add(held, std::memory_order_relaxed) + held);
  live_.fetch_add(std::exchange(t_cache.blocks, 0), std::memory_order_relaxed);
}

void* CpuAllocator::from_bins(int c) {
  const std::scoped_lock lock(mutex_);
  Free* block = bins_[c];
  if (block != nullptr) bins_[c] = block->next;
  return block;
}

void CpuAllocator::to_bins(void* data, int c) {
  const std::scoped_lock lock(mutex_);
  bins_[c] = new (data) Free{bins_[c]};
}

void* CpuAllocator::from_system(int c, int64_t requested) {
  const int64_t bytes = bytes_of(c);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    if (limit == 0 || reserved_.load(std::memory_order_relaxed) + bytes <= limit) {
      const bool huge = bytes >= 2 * kHugePage;
      const int64_t alignment = huge ? kHugePage : kAlignment;
      void* data = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
      if (data != nullptr) {
        if (huge) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // advice: a kernel without huge pages ignores it
        close_slack(data, requested, bytes);
        system_requests_.fetch_add(1, std::memory_order_relaxed);
        raise_to(peak_reserved_, reserved_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
        return data;
      }
    }
    empty_cache();
  }
  out_of_memory(requested);
}

void CpuAllocator::to_system(void* data, int c) noexcept {
  std::free(data);
  reserved_.fetch_sub(bytes_of(c), std::memory_order_relaxed);
}

void CpuAllocator::trim_bins() {
  const std::scoped_lock lock(mutex_);
  for (int c = 0; c < kClasses; ++c) {
    while (Free* block = bins_[c]) {
      bins_[c] = block->next;
      to_system(block, c);
    }
  }
}

void CpuAllocator::empty_cache() {
  t_cache.flush();
  trim_bins();
}

Stats CpuAllocator::stats() const {
  publish_counts();
  Stats s;
  s.allocated = allocated_.load(std::memory_order_relaxed);
  s.peak_allocated = peak_allocated_.load(std::memory_order_relaxed);
  s.reserved = reserved_.load(std::memory_order_relaxed);
  s.peak_reserved = peak_reserved_.load(std::memory_order_relaxed);
  s.live_blocks = live_.load(std::memory_order_relaxed);
  s.system_requests = system_requests_.load(std::memory_order_relaxed);
  return s;
}

void CpuAllocator::reset_peak() {
  publish_counts();
  peak_allocated_.store(allocated_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  peak_reserved_.store(reserved_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::vector<LiveBlock> CpuAllocator::snapshot() const {
  std::vector<LiveBlock> blocks;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [data, block] : tracked_) blocks.push_back(block);
  }
  std::sort(blocks.begin(), blocks.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.bytes > b.bytes; });
  return blocks;
}

int64_t CpuAllocator::largest_free() const {
  const std::scoped_lock lock(mutex_);
  int c = kClasses - 1;
  while (c >= 0 && bins_[c] == nullptr && t_cache.lists[c] == nullptr) --c;
  return c < 0 ? 0 : bytes_of(c);
}

void CpuAllocator::out_of_memory(int64_t requested) {
  raise_out_of_memory({.of = "cpu",
                       .requested = requested,
                       .stats = stats(),
                       .largest_free = largest_free(),
                       .limit = limit_.load(std::memory_order_relaxed),
                       .live = snapshot(),
                       .none_live = "none of 1 MB or more"});
}

}  // namespace lorry::memory
