#include "lorry/memory/lease.h"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

// ---- the allocator's side -------------------------------------------------------------------------------------------

Block* CachingAllocator::block_with(const void* address) const {
  for (const Segment* s = segments_.head; s != nullptr; s = s->next) {
    if (address < s->data || address >= s->data + s->size) continue;
    for (Block* block = s->first; block != nullptr; block = block->after)
      if (address < static_cast<const char*>(block->data) + block->size)
        return block->made_by.load(std::memory_order_relaxed) == nullptr ? nullptr : block;
  }
  return nullptr;
}

bool CachingAllocator::is_in_pool(const void* address, uint32_t pool) const {
  const std::scoped_lock lock(mutex_);
  const Block* const block = block_with(address);
  return block != nullptr && block->home->pool == pool;
}

void* CachingAllocator::lease(const void* address, LeaseState& lease, uint32_t but_pool) {
  const std::scoped_lock lock(mutex_);
  Block* const block = block_with(address);
  if (block == nullptr || (but_pool != 0 && block->home->pool == but_pool)) return nullptr;
  for (const Use& use : block->uses)
    if (use.lease == &lease) return block->data;
  block->uses.push_back({{}, nullptr, &lease});
  block->noted.store(true, std::memory_order_relaxed);
  return block->data;
}

void CachingAllocator::end_lease(void* data, LeaseState& lease) noexcept {
  const waits::Deferred told_after_the_lock;
  const std::scoped_lock lock(mutex_);
  const auto end = [&](Block& block) {
    if (block.data != data) return false;
    if (std::erase_if(block.uses, [&](const Use& use) { return use.lease == &lease; }) == 0) return false;
    block.noted.store(!block.uses.empty(), std::memory_order_relaxed);
    return true;
  };
  for (Block* block = waiting_.head; block != nullptr; block = block->next)
    if (end(*block)) {
      lease.note_end();
      return poll_waiting(INT_MAX);
    }
  if (Block* const block = block_with(data)) end(*block);
}

// ---- the graph's side -----------------------------------------------------------------------------------------------

bool is_in_current_pool(Device device, const void* address) {
  for (CachingAllocator* const from : detail::allocators_of(device))
    if (from != nullptr && detail::t_pool.of(from) != 0 && from->is_in_pool(address, detail::t_pool.of(from)))
      return true;
  return false;
}

void Leases::add(Device device, const void* address, const Pool& but_of) {
  if (address == nullptr || addresses_.contains(address)) return;
  void*& block = addresses_[address];
  for (CachingAllocator* const from : detail::allocators_of(device)) {
    if (from == nullptr) return;
    block = from->lease(address, state_, but_of.parts_.of(from));
    if (block == nullptr) continue;
    Block& leased = blocks_[block];
    leased.allocator = from;
    ++leased.uses;
    return;
  }
}

void Leases::move(Device device, std::span<const device::Move> moves, const Pool& but_of) {
  std::vector<std::pair<const void*, void*>> moved;  // where the memory is now, and the block in which it was
  for (const device::Move& move : moves)
    for (auto at = addresses_.lower_bound(move.from); at != addresses_.end(); at = addresses_.erase(at)) {
      const void* const now = move(at->first);
      if (now == nullptr) break;
      moved.emplace_back(now, at->second);
    }
  for (const auto& [now, block] : moved) add(device, now, but_of);  // before: a lease must not end while it is needed
  for (const auto& [now, block] : moved) remove(block);
}

void Leases::remove(void* block) noexcept {
  const auto leased = blocks_.find(block);
  if (leased == blocks_.end() || --leased->second.uses > 0) return;
  static_cast<CachingAllocator*>(leased->second.allocator)->end_lease(block, state_);
  blocks_.erase(leased);
}

void Leases::clear() noexcept {
  for (const auto& [data, block] : blocks_) static_cast<CachingAllocator*>(block.allocator)->end_lease(data, state_);
  blocks_.clear();
  addresses_.clear();
}

std::string Leases::released() const {
  return fmt::format("{} bytes made by {}", state_.bytes(), *state_.made_by() ? state_.made_by() : "the caller");
}

}  // namespace lorry::memory
