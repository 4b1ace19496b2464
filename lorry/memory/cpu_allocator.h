#pragma once

// The CPU's recycling allocator.
//
// Who owns a block when: a block belongs to the tensor that asked for it until release; then to the releasing thread's cache
// if it is small, else to the shared bins; either may hand it out again at once, because CPU work is finished when a call
// returns. Blocks come in size classes (multiples of 64 bytes up to 1 KB, then four steps to each power of two), so at most a
// fifth of a block is unused and no splitting is needed. A thread's cache is bounded and goes to the shared bins when the
// thread ends. Under AddressSanitizer nothing is kept, so that a use after release is seen.

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "lorry/memory/memory.h"

namespace lorry::memory {

class CpuAllocator {
 public:
  static CpuAllocator& instance();

  void* allocate(int64_t bytes);
  void release(void* data, int64_t bytes) noexcept;
  Stats stats() const;
  void reset_peak();
  void empty_cache();
  void set_limit(int64_t bytes) { limit_.store(bytes); }
  std::vector<LiveBlock> snapshot() const;
  /// Adds what this thread has counted to the shared counts; they lag by at most 64 KB a thread otherwise.
  void publish_counts() const;

  static constexpr int kClasses = 192;
  /// The class that serves a request of 1 byte or more, and the bytes of its blocks.
  static int class_of(int64_t bytes);
  static int64_t bytes_of(int size_class);

 private:
  friend struct ThreadCache;
  struct Free {
    Free* next;
  };

  void count(int64_t bytes, int64_t blocks);
  void* from_bins(int size_class);
  void to_bins(void* data, int size_class);
  void* from_system(int size_class, int64_t requested);
  void to_system(void* data, int size_class) noexcept;
  void trim_bins();
  /// Bytes of the largest block kept for reuse here or in this thread's cache; 0 without any.
  int64_t largest_free() const;
  [[noreturn]] void out_of_memory(int64_t requested);

  mutable std::mutex mutex_;
  Free* bins_[kClasses] = {};
  std::unordered_map<void*, LiveBlock> tracked_;

  mutable std::atomic<int64_t> allocated_{0}, peak_allocated_{0}, live_{0};
  std::atomic<int64_t> reserved_{0}, peak_reserved_{0}, system_requests_{0}, limit_{0};
};

}  // namespace lorry::memory
