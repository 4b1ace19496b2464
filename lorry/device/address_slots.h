#pragma once

// Memory that captured work uses may move. This is the table of the places where the work keeps addresses, sorted by
// address, so that those in a range are found by binary search.

#include <cstdint>
#include <span>
#include <vector>

namespace lorry::device {

/// What was in [from, from + bytes) is at the same distance from `to` now.
struct Move {
  const void* from;
  int64_t bytes;
  const void* to;

  /// Where the memory at an address is now; null if the address is not in [from, from + bytes).
  const void* operator()(const void* address) const {
    const uintptr_t distance = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(from);
    return distance < static_cast<uintptr_t>(bytes) ? static_cast<const char*>(to) + distance : nullptr;
  }
};

class AddressSlots {
 public:
  /// The pointer at `place` is an address, or may be one; null is none. The place belongs to a node, and must outlive
  /// the table.
  void add(void* place, int32_t node);
  /// Must be called after the last add().
  void sort();
  /// Makes all moves at once: every address is looked up as it was before the call, so two pieces of memory may change
  /// places. If several moves contain an address, the first counts. Adds the nodes whose addresses have changed to
  /// `nodes`, which is then sorted and names each once. Returns how many addresses have changed. Throws std::bad_alloc,
  /// before it changes anything.
  int64_t move(std::span<const Move> moves, std::vector<int32_t>& nodes);
  size_t size() const { return slots_.size(); }

 private:
  struct Slot {
    const void* address;
    const void* next;  ///< during a call of move(): what the address becomes; null if it stays
    void* place;
    int32_t node;
  };
  static bool by_address(const Slot& a, const Slot& b) { return a.address < b.address; }

  std::vector<Slot> slots_;
};

}  // namespace lorry::device
