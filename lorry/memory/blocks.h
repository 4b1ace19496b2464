#pragma once

// Data structures of the caching allocator: blocks, the segments they are cut from, the free blocks of a stream by
// size, and the map from an address to its block. Releasing memory never allocates here.

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "lorry/device/stream.h"

namespace lorry::memory {

class CachingAllocator;
struct Home;
struct Segment;

inline constexpr int64_t kLeastUnit = 64;   ///< the smallest unit (Policy::unit)
inline constexpr int64_t kSmall = 1 << 20;  ///< requests up to this size come from segments of kSmallSegment
inline constexpr int64_t kSmallSegment = 2 << 20;

/// Size classes of small blocks: multiples of 64 bytes up to 1 KB, then four classes per power of two. If a request is
/// a multiple of a larger power of two (up to 512), so is the size of its class.
inline constexpr int kSmallClasses = 56;
constexpr int small_class(int64_t bytes) {
  if (bytes <= 1024) return static_cast<int>((bytes + kLeastUnit - 1) / kLeastUnit) - 1;
  const int power = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  return 16 + (power - 10) * 4 + static_cast<int>((bytes - 1 - (int64_t{1} << power)) >> (power - 2));
}
constexpr int64_t small_class_bytes(int size_class) {
  if (size_class < 16) return (size_class + 1) * kLeastUnit;
  const int power = 10 + (size_class - 16) / 4, quarter = (size_class - 16) % 4;
  return (int64_t{1} << power) + (quarter + 1) * (int64_t{1} << (power - 2));
}

class LeaseState;

/// A use of a block beside that by its home stream: by another stream, or by a lease. The event of a stream is recorded
/// after the block's release, and null before.
struct Use {
  Stream stream;
  void* event;
  LeaseState* lease = nullptr;
};

struct alignas(64) Block {
  // Read by the lock-free path: one cache line.
  void* data = nullptr;
  int64_t size = 0;
  Home* home = nullptr;
  std::atomic<const char*> made_by{nullptr};  // the operator, "" outside operators; null unless the block is in use
  Block* next = nullptr;                      // in the list that holds the block; it is in one list at a time
  std::atomic<bool> noted{false};             // there are uses

  std::vector<Use> uses;  // noted under the lock, before the block's release
  Block* previous = nullptr;
  Block *before = nullptr, *after = nullptr;  // neighbours in the segment, by address
  Segment* segment = nullptr;
  const char* was_made_by = "";
  // Of free blocks:
  void* offer = nullptr;  // an event of the home stream; once it has passed, another stream may adopt the block
  int64_t absent = 0;     // bytes whose pages were returned to the system, a lower bound; the address range stays
  bool free = false;      // the block is in its home's FreeBlocks

  bool whole_segment() const { return before == nullptr && after == nullptr; }
};

/// A piece of memory from the system, divided into blocks.
struct Segment {
  char* data = nullptr;
  int64_t size = 0;
  bool small = false;
  bool mapped = false;  // its blocks are found through SmallBlocks
  int unit_bits = 0;    // log2 of the allocator's unit
  Block* first = nullptr;
  Segment *next = nullptr, *previous = nullptr;
  std::unique_ptr<Block*[]> starts;  // of a mapped segment: blocks by start(address); valid for blocks in use

  int64_t start(const void* address) const { return (static_cast<const char*>(address) - data) >> unit_bits; }
};

/// An intrusive first-in first-out list.
template <class T>
struct LinkedList {
  T *head = nullptr, *tail = nullptr;
  bool empty() const { return head == nullptr; }
  void append(T* item) {
    item->next = nullptr;
    item->previous = tail;
    (tail == nullptr ? head : tail->next) = item;
    tail = item;
  }
  void remove(T* item) {
    (item->previous == nullptr ? head : item->previous->next) = item->next;
    (item->next == nullptr ? tail : item->next->previous) = item->previous;
    item->next = item->previous = nullptr;
  }
};

/// Free blocks in bins by size, eight bins per power of two. Adding, removing and finding a block take constant time:
/// two-level segregated fit, Masmano et al. 2004. The size of a small size class is the smallest size of its bin.
class FreeBlocks {
 public:
  static constexpr int kBins = 41 * 8;  // 64 bytes to 2^47
  static int bin_of(int64_t size) {
    const int power = std::bit_width(static_cast<uint64_t>(size)) - 1;
    return (power - 6) * 8 + static_cast<int>((size >> (power - 3)) & 7);
  }

  void add(Block* block) {
    const int bin = bin_of(block->size);
    block->free = true;
    block->previous = nullptr;
    block->next = bins_[bin];
    if (block->next != nullptr) block->next->previous = block;
    bins_[bin] = block;
    filled_[bin / 64] |= uint64_t{1} << (bin % 64);
  }
  void remove(Block* block) {
    const int bin = bin_of(block->size);
    if (block->next != nullptr) block->next->previous = block->previous;
    (block->previous == nullptr ? bins_[bin] : block->previous->next) = block->next;
    if (bins_[bin] == nullptr) filled_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
    block->next = block->previous = nullptr;
    block->free = false;
  }

  /// The best fit among the first few blocks of the lowest bin that has a fitting one; null if no block fits.
  Block* fit(int64_t size) const {
    for (int bin = next_filled(bin_of(size)); bin >= 0; bin = next_filled(bin + 1)) {
      Block* best = nullptr;
      int patience = 64;
      for (Block* b = bins_[bin]; b != nullptr && patience-- > 0; b = b->next) {
        if (b->size == size) return b;
        if (b->size > size && (best == nullptr || b->size < best->size)) best = b;
      }
      if (best != nullptr) return best;
    }
    return nullptr;
  }
  /// A block of `size` to `most` bytes that is a whole segment; null if there is none.
  Block* fit_whole_segment(int64_t size, int64_t most) const {
    for (int bin = next_filled(bin_of(size)); bin >= 0; bin = next_filled(bin + 1))
      for (Block* b = bins_[bin]; b != nullptr; b = b->next)
        if (b->size >= size && b->size <= most && b->whole_segment()) return b;
    return nullptr;
  }

 private:
  int next_filled(int bin) const {
    for (int word = bin / 64; word < kWords; ++word) {
      const uint64_t bits = filled_[word] & (word == bin / 64 ? ~uint64_t{0} << (bin % 64) : ~uint64_t{0});
      if (bits != 0) return word * 64 + std::countr_zero(bits);
    }
    return -1;
  }

  static constexpr int kWords = (kBins + 63) / 64;
  Block* bins_[kBins] = {};
  uint64_t filled_[kWords] = {};
};

/// The owner of free blocks: a stream, together with the ordinary pool (0) or a private one.
struct Home {
  Stream stream;
  uint32_t pool = 0;
  bool closing = false;  // the pool was released: free segments return to the system
  int64_t segments = 0;
  FreeBlocks small, large;

  FreeBlocks& blocks(bool of_small) { return of_small ? small : large; }
};

/// Finds a small block by its address, without a lock: a two-level table over pages of 2 MB. A small segment is one
/// page. Segments that the system did not align to a page are not in the table; their blocks are looked up under the
/// lock.
class SmallBlocks {
 public:
  ~SmallBlocks() {
    for (auto& leaf : leaves_) delete leaf.load(std::memory_order_relaxed);
  }
  bool insert(Segment* segment) {
    const uint64_t page = page_of(segment->data);
    if (reinterpret_cast<uintptr_t>(segment->data) % kSmallSegment != 0 || page >> (kLeafBits + kRootBits) != 0)
      return false;
    std::atomic<Leaf*>& root = leaves_[page >> kLeafBits];
    Leaf* leaf = root.load(std::memory_order_relaxed);
    if (leaf == nullptr) root.store(leaf = new Leaf, std::memory_order_release);
    leaf->segments[page % kLeaf].store(segment, std::memory_order_release);
    return true;
  }
  void erase(const Segment* segment) {
    const uint64_t page = page_of(segment->data);
    leaves_[page >> kLeafBits]
        .load(std::memory_order_relaxed)
        ->segments[page % kLeaf]
        .store(nullptr, std::memory_order_release);
  }
  /// Null for an address outside all mapped segments.
  Block* find(const void* data) const {
    const uint64_t page = page_of(data);
    if (page >> (kLeafBits + kRootBits) != 0) return nullptr;
    const Leaf* leaf = leaves_[page >> kLeafBits].load(std::memory_order_acquire);
    if (leaf == nullptr) return nullptr;
    const Segment* segment = leaf->segments[page % kLeaf].load(std::memory_order_acquire);
    return segment == nullptr ? nullptr : segment->starts[segment->start(data)];
  }

 private:
  static constexpr int kLeafBits = 13, kRootBits = 14;  // 48 bits of address, less the 21 of a page
  static constexpr uint64_t kLeaf = uint64_t{1} << kLeafBits;
  struct Leaf {
    std::atomic<Segment*> segments[kLeaf] = {};
  };
  static uint64_t page_of(const void* data) {
    return reinterpret_cast<uintptr_t>(data) / static_cast<uintptr_t>(kSmallSegment);
  }

  std::atomic<Leaf*> leaves_[uint64_t{1} << kRootBits] = {};
};

}  // namespace lorry::memory
