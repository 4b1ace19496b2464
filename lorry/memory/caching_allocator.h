#pragma once

// The stream-ordered caching allocator. It is used for the CPU and for every kind of GPU memory; a Provider supplies
// the memory, so it can be tested without a GPU. On the CPU there is one stream, and work is done when a call returns.
//
// A stream is a queue of work: the host enqueues and does not wait. So a block is used by the host, between allocate
// and release, and by the device, somewhat later. The life of a block:
//
//   allocate  The block belongs to the current stream, its *home*. Work on that stream may use it.
//   record    Work on another stream uses the block too: record_stream notes that stream.
//   release   The host no longer uses the block; the device may still. If no other stream was noted, the block is free
//             at once, but for its home stream only: the next work on that stream runs after the work that uses the
//             block. If streams were noted, an event is recorded on each. Later allocations test these events; when all
//             have passed, the block is free for its home stream.
//   lease     A device graph uses the block at each replay (lease.h). A leased block that is released waits until the
//             lease ends.
//   adopt     A stream without a fitting free block may take a wholly free segment of another stream, after an event
//             recorded on that stream has passed. The first request records the event; an allocation that finds it
//             passed takes the segment. Until then the other stream may still use the segment.
//   system    Wholly free segments return to the system only in empty_cache, when memory is short, when the cache
//             exceeds its bound, or when their private pool ends. The provider waits for the device first.
//
// Sizes. Requests up to 1 MB are rounded up to a size class and cut from segments of 2 MB. Larger ones are rounded up
// to 64 KB and cut from segments of 20 MB; from 10 MB up each gets a segment of its own. A block is split if the rest
// is large enough to be used (a unit for small blocks, 1 MB for others). A block that becomes free merges with free
// neighbours.
//
// The bound. Cached memory (reserved memory that no tensor holds) stays within Policy::bound. When a release or a new
// segment exceeds it, free segments return to the system. If that is not enough, so do pages of free blocks in partly
// used segments, if the provider supports this (the CPU's does). Their address range stays; such bytes do not count as
// reserved until the block is used again. If little can be returned, the next attempt waits until the cache has grown
// by a sixteenth of the bound, because each attempt visits all blocks.
//
// Threads. A released small block goes to the releasing thread's bins for its home, if this thread has allocated on
// that stream. From there it serves the thread's next request of the same class: without a lock, and with two loads to
// find the block. Everything else holds one mutex. A thread cannot access other threads' bins, which hold at most
// Policy::thread_budget per class. To empty the cache, the allocator increments an epoch; each thread hands in its
// blocks at its next call, and at its end.
//
// Capture. While a stream is captured into a graph, an event would become part of the graph. So blocks with noted
// streams wait until the capture has ended, and nothing is returned to the system. A graph is replayed with the
// addresses of its capture, so captured work allocates from a private pool.

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "lorry/base/integers.h"
#include "lorry/base/waits.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/blocks.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/thread_bins.h"

namespace lorry::memory {

/// The source of memory, and of events on streams. Called under the allocator's lock. The provider owns the events.
class Provider {
 public:
  virtual ~Provider() = default;
  /// Null if there is no memory left. Throws other errors, such as a fault of the device.
  virtual void* take(int64_t bytes) = 0;
  /// Waits for the device's work, then frees.
  virtual void give_back(void* data, int64_t bytes) noexcept = 0;
  /// Returns to the system the pages of `page` bytes that lie wholly within the memory. Returns their number of bytes;
  /// 0 if the provider does not support this. The address range stays; the contents are lost.
  virtual int64_t discard(void* /*data*/, int64_t /*bytes*/, int64_t /*page*/) noexcept { return 0; }
  /// Whether give_back and wait make the host wait for a device.
  virtual bool waits_for_device() const { return false; }
  /// Whether the process may use `bytes` more, with `reserved` reserved. Called before take, and before discarded pages
  /// are used again.
  virtual bool has_room(int64_t /*bytes*/, int64_t /*reserved*/) { return true; }
  /// Text about the system's memory for OutOfMemory, such as ", the system leaves ..."; may be empty.
  virtual std::string situation(int64_t /*reserved*/) const { return {}; }
  /// Records an event after the work enqueued on the stream so far; null if that is not possible. The functions below
  /// get the same stream.
  virtual void* record(Stream stream) noexcept = 0;
  virtual bool done(Stream stream, void* event) noexcept = 0;
  virtual void wait(Stream stream, void* event) noexcept = 0;
  virtual void recycle(Stream stream, void* event) noexcept = 0;
  virtual bool capturing(Stream stream) noexcept = 0;
  /// Enqueues a fill. Used by Caching::poison only.
  virtual void fill(void* data, unsigned char value, int64_t bytes, Stream stream) noexcept = 0;
  /// Waits for the stream. Returns whether every byte has the value; true if it cannot be read. Used by Caching::poison
  /// only.
  virtual bool holds(const void* data, unsigned char value, int64_t bytes, Stream stream) noexcept = 0;
};

/// Parameters that differ between kinds of memory.
struct Policy {
  int64_t unit = 512;               ///< sizes and addresses of blocks are multiples of it; a power of two, 64 to 512
  int64_t thread_budget = 1 << 20;  ///< maximum bytes that a thread caches per size class
  int64_t bound = INT64_MAX;        ///< maximum of cached bytes (reserved memory that no tensor holds)
  int64_t pages[2] = {4096, 4096};  ///< page sizes for Provider::discard: the second is used if the first is not enough
};

enum class Caching {
  on,
  /// for finding errors: released blocks are filled with 0xff (NaN; -1), not reused for a while, and checked for writes
  poison,
  /// for memory checkers: every block comes from the system, has the exact size, and returns at its release
  direct,
};

class CachingAllocator {
 public:
  CachingAllocator(std::unique_ptr<Provider> provider, std::string name, Caching caching = Caching::on,
                   const Policy& policy = {});
  /// Only for tests, and only when all threads that used the allocator have ended and no block is in use. A program's
  /// allocators are never destroyed.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(int64_t bytes, Stream stream);
  void release(void* data, int64_t bytes) noexcept;
  void record_stream(void* data, Stream stream);

  /// Leases the block in use that contains the address, and returns its first byte; null if there is none, or if it
  /// belongs to the private pool `but_pool`. See memory/lease.h.
  void* lease(const void* address, LeaseState& lease, uint32_t but_pool);
  void end_lease(void* data, LeaseState& lease) noexcept;

  /// Whether the address lies in a block in use of a private pool.
  bool is_in_pool(const void* address, uint32_t pool) const;

  /// Makes a private pool. A thread allocates from the pool that its detail::t_pool names. Call release_pool once.
  uint32_t make_pool();
  void release_pool(uint32_t pool) noexcept;
  /// The bytes of its segments.
  int64_t pool_reserved(uint32_t pool) const;

  Stats stats();
  void reset_peak();
  void empty_cache();
  void set_limit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  /// Returns to the system at once what is cached beyond `bytes`. Returns the previous bound.
  int64_t set_cache_bound(int64_t bytes);
  std::vector<LiveBlock> snapshot() const;
  /// Frees the waiting blocks whose events have passed.
  void poll();
  /// Takes a thread's free blocks and counts. Afterwards the bins are empty and not in use.
  void hand_in(ThreadBins& bins) noexcept;

  static constexpr unsigned char kPoison = 0xff;
  static constexpr int64_t kQuarantine = 256 << 20;    ///< bytes held back from reuse in poison mode
  static constexpr int64_t kSharedSegment = 20 << 20;  ///< for requests of more than 1 MB and less than kOwnSegment
  static constexpr int64_t kOwnSegment = 10 << 20;
  static constexpr int64_t kOwnSegmentRound = 2 << 20;
  static constexpr int64_t kLargeRound = 64 << 10;

  /// The size of the block for a request of 1 byte or more, except where the rest of a free block is too small to be
  /// split off. unit: Policy::unit.
  static constexpr int64_t block_bytes(int64_t bytes, int64_t unit) {
    return bytes <= kSmall ? small_class_bytes(small_class(round_up(bytes, unit))) : round_up(bytes, kLargeRound);
  }

 private:
  void* allocate_slowly(int64_t bytes, Stream stream);
  void release_slowly(Block* block, void* data) noexcept;
  Block* obtain(Home& home, bool small, int64_t size);
  Block* adopt(Home& home, bool small, int64_t size);
  Block* from_system(Home& home, bool small, int64_t size);
  /// Removes a free block from the free blocks and splits off what is not needed.
  Block* carve(Block* block, int64_t size);
  /// Adds a block to located_.
  void locate(Block* block);
  bool restorable(const Block& block, int64_t size) const;
  /// Whether the rest of a block is large enough to be a block of its own.
  bool splits(const Block& block, int64_t size) const {
    return block.size - size >= (block.segment->small ? policy_.unit : kSmall);
  }

  /// The block in use that contains the address; null if there is none.
  Block* block_with(const void* address) const;
  void record_uses(Block& block) noexcept;
  bool uses_done(Block& block) noexcept;
  void poll_waiting(int patience) noexcept;
  /// For a released block that no stream but its home uses any more: free, quarantined, or returned to the system.
  void retire(Block* block) noexcept;
  void leave_quarantine(int64_t most);
  void to_free(Block* block) noexcept;
  void to_system(Segment* segment) noexcept;
  bool capturing() const noexcept;
  /// Returns to the system what was released during a capture, and blocks of pools that have ended.
  void return_deferred() noexcept;
  void give_back_free_segments(bool ordinary) noexcept;
  void release_cached();
  int64_t cached() const {
    return reserved_.load(std::memory_order_relaxed) - allocated_.load(std::memory_order_relaxed);
  }
  bool much_cached() const { return cached() > trim_at_.load(std::memory_order_relaxed); }
  /// Keeps what is cached within the bound.
  void keep_within_bound() noexcept {
    if (much_cached()) [[unlikely]]
      return trim();
    if (cached() <= bound_ - bound_ / 8) trim_at_.store(bound_, std::memory_order_relaxed);
  }
  void trim() noexcept;
  /// Defers the next attempt until the cache has grown by a sixteenth of the bound.
  void trim_later() noexcept;
  void trim_to(int64_t most) noexcept;
  /// Returns pages of free blocks to the system until at most `most` bytes are cached.
  void discard_free_pages(int64_t page, int64_t most) noexcept;
  void reserve(int64_t bytes) noexcept;
  /// Whether the limit and the system allow reserving `bytes` more.
  bool allowed(int64_t bytes) const;
  void withdraw_offer(Block* block) noexcept;

  void prepare_headers();  // after it, the next new_block cannot fail
  Block* new_block();
  void delete_block(Block* block) noexcept;
  Home& home_of(uint32_t pool, Stream stream);
  void count(int64_t bytes, int64_t blocks) noexcept;
  void publish(ThreadBins& bins) noexcept;
  void empty(ThreadBins& bins) noexcept;
  [[noreturn]] void out_of_memory(int64_t requested);

  const std::unique_ptr<Provider> provider_;
  const std::string name_;
  const Caching caching_;
  const Policy policy_;
  std::atomic<uint32_t> epoch_{0};
  std::atomic<int64_t> allocated_{0}, peak_allocated_{0}, live_{0}, limit_{0};
  // Written under the lock. When more than trim_at_ bytes are cached, trim() is called.
  std::atomic<int64_t> reserved_{0}, trim_at_;
  SmallBlocks small_blocks_;

  mutable std::mutex mutex_;  // protects all members below
  std::map<std::pair<uint32_t, void*>, Home> homes_;
  std::unordered_map<void*, Block*> located_;  // blocks in use that are not in small_blocks_
  LinkedList<Segment> segments_;
  LinkedList<Block> waiting_, quarantined_;
  LinkedList<Block> deferred_;  // with Caching::direct: released blocks that cannot be returned to the system yet
  Block* spare_ = nullptr;      // unused block headers, linked through next
  std::vector<std::unique_ptr<Block[]>> headers_;
  int64_t bound_;
  std::string damage_;  // describes a write to a quarantined block; thrown by the next allocation
  uint32_t last_pool_ = 0;
  int64_t peak_reserved_ = 0, system_requests_ = 0, segment_count_ = 0, retries_ = 0, waiting_bytes_ = 0,
          quarantined_bytes_ = 0;
};

namespace detail {
/// The allocators of memory that the device's kernels may use; null behind the last.
std::array<CachingAllocator*, 3> allocators_of(Device device);
}  // namespace detail

}  // namespace lorry::memory
