#include "lorry/device/address_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lorry::device {

void AddressSlots::add(void* place, int32_t node) {
  const void* address = nullptr;
  std::memcpy(&address, place, sizeof address);
  if (address != nullptr) slots_.push_back({address, nullptr, place, node});
}

void AddressSlots::sort() { std::sort(slots_.begin(), slots_.end(), by_address); }

int64_t AddressSlots::move(std::span<const Move> moves, std::vector<int32_t>& nodes) {
  nodes.reserve(nodes.size() + slots_.size());  // nothing after this throws
  for (const Move& move : moves) {
    const Slot from{move.from, nullptr, nullptr, 0};
    for (auto slot = std::lower_bound(slots_.begin(), slots_.end(), from, by_address); slot != slots_.end(); ++slot) {
      const void* const next = move(slot->address);
      if (next == nullptr) break;
      if (slot->next == nullptr) slot->next = next;
    }
  }
  const auto moved = std::stable_partition(slots_.begin(), slots_.end(), [](const Slot& x) { return !x.next; });
  for (auto slot = moved; slot != slots_.end(); ++slot) {
    slot->address = std::exchange(slot->next, nullptr);
    std::memcpy(slot->place, &slot->address, sizeof slot->address);
    nodes.push_back(slot->node);
  }
  const int64_t count = slots_.end() - moved;
  std::sort(moved, slots_.end(), by_address);
  std::inplace_merge(slots_.begin(), moved, slots_.end(), by_address);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return count;
}

}  // namespace lorry::device
