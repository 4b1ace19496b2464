#pragma once

// The stream-ordered caching allocator: one page of policy over whatever gives memory. The CPU and every kind of GPU
// memory share it, and it is tested without a GPU. On the CPU there is one stream, and work is done when a call
// returns.
//
// A stream is a queue of work; the host enqueues and does not wait. A block of memory is therefore used twice: by the
// host, between allocate and release, and by the device, somewhat later. Who owns a block when:
//
//   allocate  The block belongs to the stream that was current (its home). Work on that stream may use it freely.
//   record    Work on another stream uses it too: record_stream notes the stream.
//   release   The host is done with it; the device may not be. On its home stream that does not matter: whoever gets
//   the
//             block next enqueues behind the work that still uses it. So without noted streams the block is free at
//             once, for its home stream only. With noted streams it waits: an event is recorded on each, later
//             allocations ask whether the events have passed, and when all have the block is free for its home.
//   adopt     A stream that finds no free block of its own may take a segment that lies wholly free with another
//   stream, but only
//             after an event recorded there has passed: when it is asked for, an event is recorded, and whichever
//             allocation finds it passed takes the segment. Until then the first stream may still use it itself.
//   system    Segments that are wholly free go back only in empty_cache, when memory is short, when more than the bound
//   is
//             cached, or when their private pool ends; the provider waits for the device first.
//
// Sizes. Requests up to 1 MB are rounded to a size class and cut from segments of 2 MB, larger ones are rounded to 64
// KB and cut from segments of 20 MB, or of their own size from 10 MB up. A block is split when the rest is of use (a
// unit; 1 MB) and merged with its free neighbours when it becomes free again.
//
// The bound. Reserved memory that no tensor holds stays within Policy::bound, or a sixteenth above it where little of
// it can go back: a walk over all blocks has to be worth it. When a release or a new segment exceeds the bound, free
// segments go back to the system. If that is not enough, so do the pages of free blocks in segments that are partly
// used, where the provider can do that (the CPU's can). The address range stays, and such bytes do not count as
// reserved until the block is handed out again.
//
// Threads. A small block that is released goes to the releasing thread's bins for its home, if it has allocated on that
// stream, and from there to the thread's next request of the class: no lock, and two loads to find the block. All else
// holds one mutex. Other threads' bins (at most Policy::thread_budget a class, handed in at the thread's end) are out
// of reach; emptying the cache raises an epoch, and each thread hands in at its next call.
//
// Capture. While a stream is captured into a graph, events would become part of the graph: blocks wait until the
// capture has ended, and nothing is given back. Captured work is replayed at its addresses, so it allocates from a
// private pool.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "lorry/memory/allocate.h"
#include "lorry/memory/blocks.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/thread_bins.h"

namespace lorry::memory {

/// What gives memory, and what marks points in streams. Called under the allocator's lock; events are its own to reuse.
class Provider {
 public:
  virtual ~Provider() = default;
  /// Null when there is no more; throws what else is wrong (a device that has met a fault).
  virtual void* take(int64_t bytes) = 0;
  /// Waits for the device's work, then frees.
  virtual void give_back(void* data, int64_t bytes) noexcept = 0;
  /// Gives back the pages of `page` bytes that lie wholly within the memory, and returns how many bytes that is; 0
  /// where the provider cannot. The address range stays; the contents are lost.
  virtual int64_t discard(void* /*data*/, int64_t /*bytes*/, int64_t /*page*/) noexcept { return 0; }
  /// Whether so many more bytes may be used when `reserved` are. Asked before take, and before discarded pages are
  /// used.
  virtual bool has_room(int64_t /*bytes*/, int64_t /*reserved*/) { return true; }
  /// What an OutOfMemory adds about the system, or nothing: ", the system leaves ...".
  virtual std::string situation(int64_t /*reserved*/) const { return {}; }
  /// An event after the work enqueued on the stream so far; null when none can be recorded. The other calls name the
  /// same stream.
  virtual void* record(Stream stream) noexcept = 0;
  virtual bool done(Stream stream, void* event) noexcept = 0;
  virtual void wait(Stream stream, void* event) noexcept = 0;
  virtual void recycle(Stream stream, void* event) noexcept = 0;
  virtual bool capturing(Stream stream) noexcept = 0;
  /// Enqueues a fill; for Caching::poison.
  virtual void fill(void* data, unsigned char value, int64_t bytes, Stream stream) noexcept = 0;
  /// Waits for the stream and says whether every byte has the value (or cannot be read); for Caching::poison.
  virtual bool holds(const void* data, unsigned char value, int64_t bytes, Stream stream) noexcept = 0;
};

/// What differs between kinds of memory.
struct Policy {
  int64_t unit = 512;               ///< sizes and addresses of blocks are multiples of it; a power of two, 64 to 512
  int64_t thread_budget = 1 << 20;  ///< bytes that a thread keeps of a size class
  int64_t bound = INT64_MAX;        ///< of reserved memory that no tensor holds, in bytes
  int64_t pages[2] = {4096, 4096};  ///< Provider::discard is asked for the first size, then for the second if need be
};

enum class Caching {
  on,
  /// released blocks are filled with 0xff (NaN; -1), kept from reuse for a while, and checked for writes in between
  poison,
  direct,  ///< every block is the system's own, of the exact size, and goes back on release: for memory checkers
};

class CachingAllocator {
 public:
  CachingAllocator(std::unique_ptr<Provider> provider, std::string name, Caching caching = Caching::on,
                   const Policy& policy = {});
  /// For tests: threads that used the allocator have ended, and nothing is live. A program's allocators are never
  /// destroyed.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(int64_t bytes, Stream stream);
  void release(void* data, int64_t bytes) noexcept;
  void record_stream(void* data, Stream stream);

  /// A private pool; allocations of a thread that names it in detail::t_pool come from it. Release it once.
  uint32_t make_pool();
  void release_pool(uint32_t pool) noexcept;

  Stats stats();
  void reset_peak();
  void empty_cache();
  void set_limit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  /// Gives back at once what is cached beyond `bytes`. Returns the bound until now.
  int64_t set_cache_bound(int64_t bytes);
  std::vector<LiveBlock> snapshot() const;
  /// Asks of every waiting block whether it is free now.
  void poll();
  /// Takes over a thread's free blocks and counts; the bins are empty and nobody's afterwards.
  void hand_in(ThreadBins& bins) noexcept;

  static constexpr unsigned char kPoison = 0xff;
  static constexpr int64_t kQuarantine = 256 << 20;    ///< bytes kept from reuse in poison mode
  static constexpr int64_t kSharedSegment = 20 << 20;  ///< for requests of more than 1 MB and less than kOwnSegment
  static constexpr int64_t kOwnSegment = 10 << 20;
  static constexpr int64_t kOwnSegmentRound = 2 << 20;
  static constexpr int64_t kLargeRound = 64 << 10;

 private:
  void* allocate_slowly(int64_t bytes, Stream stream);
  void release_slowly(Block* block, void* data) noexcept;
  Block* obtain(Home& home, bool small, int64_t size);
  Block* adopt(Home& home, bool small, int64_t size);
  Block* from_system(Home& home, bool small, int64_t size);
  /// Cuts a free block to size and takes it out of the free ones.
  Block* carve(Block* block, int64_t size);
  void locate(Block* block);
  bool restorable(const Block& block, int64_t size) const;
  /// Whether what remains of a block is of use by itself.
  bool splits(const Block& block, int64_t size) const {
    return block.size - size >= (block.segment->small ? policy_.unit : kSmall);
  }

  void mark(Block& block) noexcept;
  bool settled(Block& block) noexcept;
  void poll_waiting(int patience) noexcept;
  /// Nothing runs any more that uses the block outside its home stream.
  void retire(Block* block) noexcept;
  void leave_quarantine(int64_t most);
  void to_free(Block* block) noexcept;
  void to_system(Segment* segment) noexcept;
  bool capturing() const noexcept;
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
  /// Puts the next walk off until a sixteenth of the bound has been added to what is cached now.
  void trim_later() noexcept;
  void trim_to(int64_t most) noexcept;
  /// Gives back pages of free blocks until at most `most` bytes are cached.
  void discard_free_pages(int64_t page, int64_t most) noexcept;
  void reserve(int64_t bytes) noexcept;
  /// Whether the limit and the system allow so many more bytes.
  bool allowed(int64_t bytes) const;
  void withdraw_offer(Block* block) noexcept;

  void prepare_headers();  // so that the next new_block cannot fail
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
  // Written under the lock. Above trim_at_ cached bytes it is worth a look what can go back.
  std::atomic<int64_t> reserved_{0}, trim_at_;
  SmallBlocks small_blocks_;

  mutable std::mutex mutex_;  // over all that follows
  std::map<std::pair<uint32_t, void*>, Home> homes_;
  std::unordered_map<void*, Block*> located_;  // live blocks that small_blocks_ does not find
  List<Segment> segments_;
  List<Block> waiting_, quarantined_;
  Block* spare_ = nullptr;  // block headers, linked through next
  std::vector<std::unique_ptr<Block[]>> headers_;
  int64_t bound_;
  std::string damage_;  // a write to a quarantined block, to be thrown by the next allocation
  uint32_t last_pool_ = 0;
  int64_t peak_reserved_ = 0, system_requests_ = 0, segment_count_ = 0, retries_ = 0, waiting_bytes_ = 0,
          quarantined_bytes_ = 0;
};

}  // namespace lorry::memory
