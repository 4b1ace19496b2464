#include "lorry/memory/caching_allocator.h"

#include <algorithm>
#include <climits>
#include <new>
#include <utility>

#include "lorry/base/modes.h"
#include "lorry/memory/counters.h"
#include "lorry/memory/lease.h"
#include "lorry/memory/observer.h"
#include "lorry/memory/out_of_memory.h"

namespace lorry::memory {
namespace {

constexpr int64_t kMost = int64_t{1} << 46;  // bytes; larger requests are refused at once
constexpr int kPatience = 8;                 // an allocation stops polling after this many blocks that must still wait

/// round_up without a division, for units that are powers of two.
int64_t round_to_unit(int64_t bytes, int64_t unit) { return (bytes + unit - 1) & -unit; }
const char* running() { return running_or(""); }

}  // namespace

CachingAllocator::CachingAllocator(std::unique_ptr<Provider> provider, std::string name, Caching caching,
                                   const Policy& policy)
    : provider_(std::move(provider)),
      name_(std::move(name)),
      caching_(caching),
      policy_(policy),
      trim_at_(policy.bound),
      bound_(policy.bound) {}

CachingAllocator::~CachingAllocator() {
  for (ThreadBins& bins : t_cache.bins)
    if (bins.owner == this) hand_in(bins);
  release_cached();
  while (Segment* segment = segments_.head) {  // of private pools, and with blocks that tests still use
    segments_.remove(segment);
    provider_->give_back(segment->data, segment->size);
    delete segment;
  }
}

// ---- the lock-free path ---------------------------------------------------------------------------------------------

void* CachingAllocator::allocate(int64_t bytes, Stream stream) {
  if (static_cast<uint64_t>(bytes) - 1 < static_cast<uint64_t>(kSmall) && detail::t_pool.of(this) == 0) [[likely]] {
    ThreadBins* bins = t_cache.find(this, stream.handle);
    if (bins != nullptr && bins->epoch == epoch_.load(std::memory_order_relaxed)) [[likely]] {
      if (Block* block = bins->take(small_class(round_to_unit(bytes, policy_.unit)))) {
        block->made_by.store(running(), std::memory_order_relaxed);
        if (bins->count(block->size, 1)) publish(*bins);
        announce_allocated(name_, *block);
        return block->data;
      }
    }
  }
  return allocate_slowly(bytes, stream);
}

void CachingAllocator::release(void* data, int64_t bytes) noexcept {
  if (data == nullptr) return;
  Block* block = bytes <= kSmall ? small_blocks_.find(data) : nullptr;
  if (block != nullptr && !block->noted.load(std::memory_order_relaxed)) [[likely]] {
    ThreadBins* bins = t_cache.find(block->home);
    if (bins != nullptr && bins->epoch == epoch_.load(std::memory_order_relaxed)) [[likely]] {
      announce_released(name_, *block);
      block->made_by.store(nullptr, std::memory_order_relaxed);
      if (bins->keep(block)) {
        if (bins->count(-block->size, -1)) {
          publish(*bins);
          if (much_cached()) [[unlikely]] {
            const waits::Deferred told_after_the_lock;
            const std::scoped_lock lock(mutex_);
            keep_within_bound();
          }
        }
        return;
      }
    }
  }
  release_slowly(block, data);
}

void CachingAllocator::publish(ThreadBins& bins) noexcept {
  count(std::exchange(bins.held, 0), std::exchange(bins.blocks, 0));
}

void CachingAllocator::count(int64_t bytes, int64_t blocks) noexcept {
  raise_to(peak_allocated_, allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  live_.fetch_add(blocks, std::memory_order_relaxed);
}

void CachingAllocator::empty(ThreadBins& bins) noexcept {
  for (int c = 0; c < kSmallClasses; ++c)
    while (Block* block = bins.take(c)) to_free(block);
}

void CachingAllocator::hand_in(ThreadBins& bins) noexcept {
  const waits::Deferred told_after_the_lock;
  const std::scoped_lock lock(mutex_);
  empty(bins);
  publish(bins);
  bins = {};
}

// ---- allocating under the lock --------------------------------------------------------------------------------------

void* CachingAllocator::allocate_slowly(int64_t bytes, Stream stream) {
  if (bytes == 0) return nullptr;
  if (bytes < 0 || bytes > kMost) out_of_memory(bytes);
  const uint32_t pool = detail::t_pool.of(this);
  const bool small = bytes <= kSmall && caching_ != Caching::direct;
  const int64_t size = caching_ == Caching::direct ? bytes : block_bytes(bytes, policy_.unit);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  for (ThreadBins& bins : t_cache.bins)
    if (bins.owner == this && bins.epoch != epoch) hand_in(bins);

  Home* home = nullptr;
  Block* block = nullptr;
  try {
    const waits::Deferred told_after_the_lock;
    const std::scoped_lock lock(mutex_);
    if (!damage_.empty()) raise_as<Error>(nullptr, "{}", std::exchange(damage_, std::string()));
    home = &home_of(pool, stream);
    poll_waiting(kPatience);
    return_deferred();
    if (quarantined_bytes_ > kQuarantine) leave_quarantine(kQuarantine);
    block = obtain(*home, small, size);
    if (block == nullptr) {
      if (provider_->waits_for_device()) waits::expect(waits::Wait::out_of_memory);
      const waits::Reason reason(waits::Wait::out_of_memory);
      ++retries_;
      release_cached();
      block = obtain(*home, small, size);
    }
    if (block != nullptr) {
      if (!block->segment->mapped) locate(block);
      block->made_by.store(running(), std::memory_order_relaxed);
      count(block->size, 1);
      announce_allocated(name_, *block);
      keep_within_bound();
    }
  } catch (const std::bad_alloc&) {  // of a header
    block = nullptr;
  }
  if (block == nullptr) out_of_memory(bytes);
  if (small && pool == 0 && caching_ == Caching::on) t_cache.open(*this, *home, policy_.thread_budget, epoch);
  return block->data;
}

Block* CachingAllocator::obtain(Home& home, bool small, int64_t size) {
  if (caching_ == Caching::direct) return from_system(home, small, size);
  FreeBlocks& own = home.blocks(small);
  Block* block = own.fit(size);
  if (block == nullptr && !waiting_.empty()) {
    poll_waiting(INT_MAX);
    block = own.fit(size);
  }
  if (block == nullptr) block = adopt(home, small, size);
  if (block != nullptr && block->absent > 0 && !restorable(*block, size)) return nullptr;
  if (block == nullptr) block = from_system(home, small, size);
  return block == nullptr ? nullptr : carve(block, size);
}

void CachingAllocator::locate(Block* block) {
  try {
    located_[block->data] = block;
  } catch (...) {
    retire(block);
    throw;
  }
}

Block* CachingAllocator::adopt(Home& home, bool small, int64_t size) {
  if (home.pool != 0) return nullptr;  // private pools are used during capture, when recording events is not allowed
  const int64_t most = std::max(2 * size, kSharedSegment);
  for (auto& [key, other] : homes_) {
    if (&other == &home || other.pool != 0) continue;
    Block* block = other.blocks(small).fit_whole_segment(size, most);
    if (block == nullptr) continue;
    if (block->offer == nullptr && !provider_->capturing(other.stream)) block->offer = provider_->record(other.stream);
    if (block->offer == nullptr || !provider_->done(other.stream, block->offer)) continue;
    other.blocks(small).remove(block);
    withdraw_offer(block);
    --other.segments;
    ++home.segments;
    block->home = &home;
    home.blocks(small).add(block);
    return block;
  }
  return nullptr;
}

Block* CachingAllocator::from_system(Home& home, bool small, int64_t size) {
  const bool direct = caching_ == Caching::direct;
  const int64_t least = direct ? size : round_up(size, kOwnSegmentRound);
  const int64_t preferred = direct ? size : small ? kSmallSegment : size < kOwnSegment ? kSharedSegment : least;
  auto segment = std::make_unique<Segment>();
  prepare_headers();
  segment->unit_bits = std::countr_zero(static_cast<uint64_t>(policy_.unit));
  if (small) segment->starts = std::make_unique<Block*[]>(static_cast<size_t>(kSmallSegment / policy_.unit));
  for (const int64_t bytes : {preferred, least}) {  // a shared segment may not fit where the request alone does
    if (segment->size == bytes) break;
    segment->size = bytes;
    if (!allowed(bytes)) continue;
    segment->data = static_cast<char*>(provider_->take(bytes));
    if (segment->data != nullptr) break;
  }
  if (segment->data == nullptr) return nullptr;
  ++system_requests_;
  ++segment_count_;
  ++home.segments;
  reserve(segment->size);

  Block* block = new_block();
  block->data = segment->data;
  block->size = segment->size;
  block->segment = segment.get();
  block->home = &home;
  segment->first = block;
  segment->small = small;
  segment->mapped = small && small_blocks_.insert(segment.get());
  if (segment->mapped) segment->starts[0] = block;
  segments_.append(segment.release());
  if (!direct) home.blocks(small).add(block);
  return block;
}

Block* CachingAllocator::carve(Block* block, int64_t size) {
  Home& home = *block->home;
  Segment& segment = *block->segment;
  const int64_t rest = block->size - size;
  Block* tail = splits(*block, size) ? new_block() : nullptr;
  home.blocks(segment.small).remove(block);
  withdraw_offer(block);
  const int64_t absent = std::exchange(block->absent, 0);
  reserve(std::min(absent, tail == nullptr ? block->size : size));
  if (tail == nullptr) return block;
  tail->absent = std::max<int64_t>(absent - size, 0);
  block->size = size;
  tail->data = static_cast<char*>(block->data) + size;
  tail->size = rest;
  tail->segment = &segment;
  tail->home = &home;
  tail->before = block;
  tail->after = block->after;
  if (tail->after != nullptr) tail->after->before = tail;
  block->after = tail;
  if (segment.mapped) segment.starts[segment.start(tail->data)] = tail;
  home.blocks(segment.small).add(tail);
  return block;
}

/// Whether the discarded pages of a free block may be used again, as far as a block of `size` needs them.
bool CachingAllocator::restorable(const Block& block, int64_t size) const {
  const int64_t bytes = std::min(block.absent, splits(block, size) ? size : block.size);
  return allowed(bytes);
}

bool CachingAllocator::allowed(int64_t bytes) const {
  const int64_t limit = limit_.load(std::memory_order_relaxed), now = reserved_.load(std::memory_order_relaxed);
  return (limit == 0 || now + bytes <= limit) && provider_->has_room(bytes, now);
}

void CachingAllocator::reserve(int64_t bytes) noexcept {
  reserved_.fetch_add(bytes, std::memory_order_relaxed);
  peak_reserved_ = std::max(peak_reserved_, reserved_.load(std::memory_order_relaxed));
}

void CachingAllocator::out_of_memory(int64_t requested) {
  int64_t largest_free = 0;
  std::string situation;
  {
    const std::scoped_lock lock(mutex_);
    situation = provider_->situation(reserved_.load(std::memory_order_relaxed));
    for (const Segment* s = segments_.head; s != nullptr; s = s->next)
      for (const Block* b = s->first; b != nullptr; b = b->after)
        if (b->free) largest_free = std::max(largest_free, b->size - b->absent);
  }
  raise_out_of_memory({.of = name_,
                       .requested = requested,
                       .stats = stats(),
                       .largest_free = largest_free,
                       .limit = limit_.load(std::memory_order_relaxed),
                       .situation = std::move(situation),
                       .live = snapshot()});
}

// ---- releasing under the lock ---------------------------------------------------------------------------------------

void CachingAllocator::release_slowly(Block* block, void* data) noexcept {
  const waits::Deferred told_after_the_lock;
  const std::scoped_lock lock(mutex_);
  if (block == nullptr) {
    const auto found = located_.find(data);
    if (found == located_.end()) return;
    block = found->second;
    located_.erase(found);
  }
  announce_released(name_, *block);
  if (const char* made_by = block->made_by.exchange(nullptr, std::memory_order_relaxed)) block->was_made_by = made_by;
  for (const Use& use : block->uses)
    if (use.lease != nullptr) use.lease->note_release(*block->was_made_by ? block->was_made_by : "", block->size);
  count(-block->size, -1);
  if (block->uses.empty()) {
    retire(block);
    return keep_within_bound();
  }
  record_uses(*block);
  waiting_.append(block);
  waiting_bytes_ += block->size;
  if (caching_ != Caching::direct) return;
  for (const Use& use : block->uses)
    if (use.event != nullptr) provider_->wait(use.stream, use.event);
  poll_waiting(INT_MAX);
}

void CachingAllocator::record_stream(void* data, Stream stream) {
  const std::scoped_lock lock(mutex_);
  Block* block = small_blocks_.find(data);
  if (block == nullptr) {
    const auto found = located_.find(data);
    if (found != located_.end()) block = found->second;
  }
  if (block == nullptr || block->data != data || block->made_by.load(std::memory_order_relaxed) == nullptr) return;
  if (!stream.device.is_cuda() || stream == block->home->stream) return;  // the CPU's work is done on return
  for (const Use& use : block->uses)
    if (use.lease == nullptr && use.stream == stream) return;
  block->uses.push_back({stream, nullptr});
  block->noted.store(true, std::memory_order_relaxed);
}

/// Records the events that the block waits for, on streams that are not being captured.
void CachingAllocator::record_uses(Block& block) noexcept {
  for (Use& use : block.uses)
    if (use.lease == nullptr && use.event == nullptr && !provider_->capturing(use.stream))
      use.event = provider_->record(use.stream);
}

bool CachingAllocator::uses_done(Block& block) noexcept {
  record_uses(block);
  while (!block.uses.empty()) {
    const Use& use = block.uses.back();
    if (use.event == nullptr || !provider_->done(use.stream, use.event)) return false;
    provider_->recycle(use.stream, use.event);
    block.uses.pop_back();
  }
  block.noted.store(false, std::memory_order_relaxed);
  return true;
}

void CachingAllocator::poll_waiting(int patience) noexcept {
  for (Block* block = waiting_.head; block != nullptr && patience > 0;) {
    Block* next = block->next;
    if (uses_done(*block)) {
      waiting_.remove(block);
      waiting_bytes_ -= block->size;
      retire(block);
    } else {
      --patience;
    }
    block = next;
  }
}

void CachingAllocator::poll() {
  const std::scoped_lock lock(mutex_);
  poll_waiting(INT_MAX);
}

void CachingAllocator::retire(Block* block) noexcept {
  switch (caching_) {
    case Caching::on:
      return to_free(block);
    case Caching::poison:
      provider_->fill(block->data, kPoison, block->size, block->home->stream);
      quarantined_.append(block);
      quarantined_bytes_ += block->size;
      return;
    case Caching::direct:
      // A graph goes on using the memory of its pool, and a capture does not allow that memory is returned.
      if ((block->home->pool != 0 && !block->home->closing) || capturing()) return deferred_.append(block);
      return to_system(block->segment);
  }
}

void CachingAllocator::leave_quarantine(int64_t most) {
  while (quarantined_bytes_ > most) {
    Block* block = quarantined_.head;
    if (provider_->capturing(block->home->stream)) return;
    quarantined_.remove(block);
    quarantined_bytes_ -= block->size;
    if (!provider_->holds(block->data, kPoison, block->size, block->home->stream)) {
      damage_ = fmt::format(
          "memory::release: a block of {} was written after its release; {} bytes made by {}; expected nobody to use "
          "it; keep the tensor alive, or note the other stream with record_stream",
          name_, block->size, *block->was_made_by ? block->was_made_by : "the caller");
    }
    to_free(block);
  }
}

void CachingAllocator::to_free(Block* block) noexcept {
  Home& home = *block->home;
  FreeBlocks& free = home.blocks(block->segment->small);
  if (Block* before = block->before; before != nullptr && before->free) {
    free.remove(before);
    before->size += block->size;
    before->absent += block->absent;
    before->after = block->after;
    if (block->after != nullptr) block->after->before = before;
    delete_block(std::exchange(block, before));
  }
  if (Block* after = block->after; after != nullptr && after->free) {
    free.remove(after);
    block->size += after->size;
    block->absent += after->absent;
    block->after = after->after;
    if (block->after != nullptr) block->after->before = block;
    delete_block(after);
  }
  free.add(block);
  if (home.closing && block->whole_segment()) give_back_free_segments(false);
}

// ---- returning memory to the system ---------------------------------------------------------------------------------

void CachingAllocator::to_system(Segment* segment) noexcept {
  Block* block = segment->first;
  if (block->free) block->home->blocks(segment->small).remove(block);
  withdraw_offer(block);
  --block->home->segments;
  reserve(block->absent - segment->size);
  delete_block(block);
  if (segment->mapped) small_blocks_.erase(segment);
  provider_->give_back(segment->data, segment->size);
  --segment_count_;
  segments_.remove(segment);
  delete segment;
}

/// Whether any stream with blocks is being captured. Returning memory waits for the device, which would break a
/// capture.
bool CachingAllocator::capturing() const noexcept {
  for (const auto& [key, home] : homes_)
    if (provider_->capturing(home.stream)) return true;
  for (const Block* block = waiting_.head; block != nullptr; block = block->next)
    for (const Use& use : block->uses)
      if (use.lease == nullptr && use.event == nullptr && provider_->capturing(use.stream)) return true;
  return false;
}

/// Returns free segments of released private pools to the system, and with `ordinary` those of the ordinary pool.
void CachingAllocator::give_back_free_segments(bool ordinary) noexcept {
  if (capturing()) return;
  for (Segment* segment = segments_.head; segment != nullptr;) {
    Segment* next = segment->next;
    const Block& block = *segment->first;
    if (block.free && block.whole_segment() && (block.home->closing || (ordinary && block.home->pool == 0)))
      to_system(segment);
    segment = next;
  }
  std::erase_if(homes_, [](const auto& entry) { return entry.second.closing && entry.second.segments == 0; });
}

void CachingAllocator::release_cached() {
  if (capturing()) return;
  for (ThreadBins& bins : t_cache.bins)
    if (bins.owner == this) empty(bins);
  epoch_.fetch_add(1, std::memory_order_relaxed);
  for (Block* block = waiting_.head; block != nullptr; block = block->next) {
    record_uses(*block);
    for (const Use& use : block->uses)
      if (use.event != nullptr) provider_->wait(use.stream, use.event);
  }
  poll_waiting(INT_MAX);
  leave_quarantine(0);
  give_back_free_segments(true);
  for (const int64_t page : policy_.pages) discard_free_pages(page, 0);
}

void CachingAllocator::empty_cache() {
  const waits::Deferred told_after_the_lock;
  const std::scoped_lock lock(mutex_);
  release_cached();
}

void CachingAllocator::withdraw_offer(Block* block) noexcept {
  if (block->offer != nullptr) provider_->recycle(block->home->stream, std::exchange(block->offer, nullptr));
}

void CachingAllocator::return_deferred() noexcept {
  if (deferred_.empty() || capturing()) return;
  for (Block* block = deferred_.head; block != nullptr;) {
    Block* const next = block->next;
    if (block->home->pool == 0 || block->home->closing) {
      deferred_.remove(block);
      to_system(block->segment);
    }
    block = next;
  }
}

uint32_t CachingAllocator::make_pool() {
  const std::scoped_lock lock(mutex_);
  return ++last_pool_;
}

void CachingAllocator::release_pool(uint32_t pool) noexcept {
  const waits::Deferred told_after_the_lock;
  const std::scoped_lock lock(mutex_);
  for (auto& [key, home] : homes_)
    if (home.pool == pool) home.closing = true;
  return_deferred();
  poll_waiting(INT_MAX);
  give_back_free_segments(false);
}

int64_t CachingAllocator::pool_reserved(uint32_t pool) const {
  const std::scoped_lock lock(mutex_);
  int64_t bytes = 0;
  for (const Segment* segment = segments_.head; segment != nullptr; segment = segment->next)
    if (segment->first->home->pool == pool) bytes += segment->size;
  return bytes;
}

// ---- headers, homes and statistics ----------------------------------------------------------------------------------

void CachingAllocator::prepare_headers() {
  if (spare_ != nullptr) return;
  constexpr int kTogether = 256;
  headers_.push_back(std::make_unique<Block[]>(kTogether));
  for (int i = 0; i < kTogether; ++i) {
    headers_.back()[i].next = spare_;
    spare_ = &headers_.back()[i];
  }
}

Block* CachingAllocator::new_block() {
  prepare_headers();
  return std::exchange(spare_, std::exchange(spare_->next, nullptr));
}

void CachingAllocator::delete_block(Block* block) noexcept {
  block->data = nullptr;
  block->size = 0;
  block->segment = nullptr;
  block->home = nullptr;
  block->before = block->after = block->previous = nullptr;
  block->absent = 0;
  block->free = false;
  block->next = std::exchange(spare_, block);
}

Home& CachingAllocator::home_of(uint32_t pool, Stream stream) {
  const auto [entry, made] = homes_.try_emplace({pool, stream.handle});
  Home& home = entry->second;
  if (made) {  // threads with bins of the home read these without the lock
    home.stream = stream;
    home.pool = pool;
  }
  return home;
}

}  // namespace lorry::memory
