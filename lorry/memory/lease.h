#pragma once

// Leases: memory that a device graph reads and writes at each replay, but that tensors outside the graph own. A leased
// block that is released is not used again until the lease ends, so a replay never reads another tensor's elements.
// The lease tells of the release, so that the graph can refuse to run.

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "lorry/device/address_slots.h"
#include "lorry/layout/device.h"
#include "lorry/memory/allocate.h"

namespace lorry::memory {

/// Whether an address of the device's or of host memory lies in a block in use of the pool that this thread allocates
/// from.
bool is_in_current_pool(Device device, const void* address);

/// What an allocator tells a lease. Thread-safe.
class LeaseState {
 public:
  /// Whether no leased block is released.
  bool intact() const { return released_.load(std::memory_order_acquire) == 0; }
  /// made_by: the operator that allocated the block; "" outside operators.
  void note_release(const char* made_by, int64_t bytes) noexcept {
    made_by_.store(made_by, std::memory_order_relaxed);
    bytes_.store(bytes, std::memory_order_relaxed);
    released_.fetch_add(1, std::memory_order_release);
  }
  /// The lease of a released block has ended.
  void note_end() noexcept { released_.fetch_sub(1, std::memory_order_release); }
  /// Of the block that was released last.
  const char* made_by() const { return made_by_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> released_{0};
  std::atomic<const char*> made_by_{""};
  std::atomic<int64_t> bytes_{0};
};

/// The leases of one graph, by the addresses that it uses.
class Leases {
 public:
  Leases() = default;
  ~Leases() { clear(); }
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  /// Leases the block that contains an address used on the device: its own memory, or pinned or managed memory. Does
  /// nothing for blocks of the pool, and for memory that no allocator of Lorry owns. Throws std::bad_alloc.
  void add(Device device, const void* address, const Pool& but_of);
  /// The graph uses memory where it is after the moves, as AddressSlots::move() makes them. Ends the leases of blocks
  /// that it uses no more. Throws std::bad_alloc; then what was leased stays leased.
  void move(Device device, std::span<const device::Move> moves, const Pool& but_of);
  /// Ends all leases.
  void clear() noexcept;
  /// Whether no leased block is released.
  bool intact() const { return state_.intact(); }
  /// "9216 bytes made by randn": a block that was released. Only if not intact.
  std::string released() const;
  /// The number of blocks.
  size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    void* allocator;
    int64_t uses = 0;  ///< addresses
  };
  void remove(void* block) noexcept;

  LeaseState state_;
  std::map<const void*, void*> addresses_;  ///< to the first byte of the block; null if it is not leased
  std::map<void*, Block> blocks_;
};

}  // namespace lorry::memory
