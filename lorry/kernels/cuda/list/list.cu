#include "lorry/kernels/cuda/list/list.h"

#include <algorithm>

#include "lorry/memory/allocate.h"
#include "lorry/memory/upload.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int64_t kTicketBytes = 16;

}  // namespace

// Arguments are fastest if they need only one launch: nothing is uploaded when a tensor moves, and warps need not read
// which entry owns their tile, which is worth 2 % of a long step. 32 KB of arguments cost the host 2 us more than an
// existing table, and a second launch costs more than that.
Strategy choose_strategy(int count, int entry_bytes, bool large_arguments) {
  const auto fits = [&](int bytes) { return count <= (bytes - kBodyBytes - 16) / entry_bytes; };
  if (fits(4'096)) return Strategy::kernel_args_4k;
  return large_arguments && fits(32'764) ? Strategy::kernel_args_32k : Strategy::device_table;
}

CudaList& CudaList::of(const List& list, const Geometry& geometry, const Stream& stream) {
  auto* known = static_cast<CudaList*>(list.on_device().get());
  if (known == nullptr || !(known->geometry_ == geometry)) {
    list.on_device().reset(known = new CudaList(list, geometry));
    list.moved().clear();
  }
  if (!std::ranges::all_of(list.moved(), [&](uint32_t moved) { return known->update_addresses(list, moved); }))
    list.on_device().reset(known = new CudaList(list, geometry));
  list.moved().clear();
  if (known->table_ != nullptr && known->count_ > 0)
    known->table_->refresh({known->entries_.data(), known->count_, known->entry_bytes_, known->tiles_}, known->stale_,
                           stream);
  known->stale_.clear();
  return *known;
}

CudaList::CudaList(const List& list, const Geometry& geometry)
    : geometry_(geometry),
      device_(list.device()),
      arrays_(list.arrays()),
      entry_bytes_(8 * list.arrays() + 16),
      strategy_(list.strategy()) {
  const std::span<const ListEntry> entries = list.entries();
  for (int k = 0; k < arrays_; ++k) element_bytes_[k] = size_of(list.dtype(k));
  for (const ListEntry& entry : entries) positions_.push_back(entry.count > 0 ? count_++ : -1);
  entries_.resize(static_cast<size_t>(count_) * entry_bytes_);
  int64_t tiles = 0;
  for (size_t e = 0; e < entries.size(); ++e) {
    if (positions_[e] < 0) continue;
    require<ValueError>(entries[e].count <= kMaxCount && entries[e].word <= kMaxWord && entries[e].number <= kMaxWord,
                        "entry {} does not fit; got {} elements, word {}, number {}; expected at most {}, {} and {}", e,
                        entries[e].count, entries[e].word, entries[e].number, kMaxCount, kMaxWord, kMaxWord);
    std::memcpy(&entries_[static_cast<size_t>(positions_[e]) * entry_bytes_], entries[e].at, 8 * arrays_);
    Entry<1>& entry = last_part(positions_[e]);
    entry.count = entries[e].count;
    entry.first_tile = static_cast<uint32_t>(tiles);
    entry.word = entries[e].word;
    entry.number = entries[e].number;
    entry.head = head_of(entries[e]);
    tiles += tiles_of(entries[e].count, static_cast<uint8_t>(entry.head), geometry_.tile);
    require<ValueError>(tiles <= INT32_MAX, "more elements than a launch takes; got {} tiles of {}", tiles,
                        geometry_.tile);
  }
  tiles_ = static_cast<uint32_t>(tiles);
  if (strategy_ == Strategy::automatic) strategy_ = choose_strategy(count_, entry_bytes_, geometry.large_arguments);
  if (strategy_ == Strategy::kernel_args_32k && !geometry.large_arguments) strategy_ = Strategy::kernel_args_4k;
  table_ = make_table(strategy_, device_);
}

Entry<1>& CudaList::last_part(int position) {
  return *reinterpret_cast<Entry<1>*>(&entries_[static_cast<size_t>(position) * entry_bytes_] + 8 * (arrays_ - 1));
}

uint32_t CudaList::first_tile(int position) { return position == count_ ? tiles_ : last_part(position).first_tile; }

CudaList::~CudaList() {
  memory::release(device_, ticket_memory_, kTicketBytes);
  memory::release(device_, work_, work_bytes_);
}

uint8_t CudaList::head_of(const ListEntry& entry) const {
  if (geometry_.run_length == 1) return 0;
  int head = kAnyHead;
  for (int k = 0; k < arrays_; ++k)
    if (entry.at[k] != nullptr)
      head = join_head(head, entry.at[k], static_cast<int>(element_bytes_[k]),
                       static_cast<int>(element_bytes_[k]) * geometry_.run_length);
  return static_cast<uint8_t>(head);
}

bool CudaList::update_addresses(const List& list, uint32_t at) {
  const int32_t position = positions_[at];
  if (position < 0) return true;
  const ListEntry& moved = list.entries()[at];
  Entry<1>& entry = last_part(position);
  // Tiles may start at other elements now. If their number changes, the tiles of all later entries change too.
  const uint8_t head = head_of(moved);
  if (tiles_of(moved.count, head, geometry_.tile) != int64_t{first_tile(position + 1)} - first_tile(position))
    return false;
  std::memcpy(&entries_[static_cast<size_t>(position) * entry_bytes_], moved.at, 8 * arrays_);
  entry.head = head;
  stale_.push_back(static_cast<uint32_t>(position));
  return true;
}

Counters& CudaList::ticket(const Stream& stream) {
  // Each stream needs its own ticket; with one, kernels of two streams would count each other's blocks.
  if (ticket_.data() == nullptr || !(ticket_stream_ == stream)) {
    const StreamScope scope(stream);
    memory::release(device_, ticket_memory_, kTicketBytes);
    ticket_memory_ = nullptr, ticket_ = {};
    ticket_memory_ = static_cast<char*>(memory::allocate(device_, kTicketBytes));
    ticket_ = Counters(reinterpret_cast<uint32_t*>(ticket_memory_), kTicketBytes);
    ticket_stream_ = stream;
  }
  return ticket_;
}

char* CudaList::workspace(uint64_t key, int64_t bytes, int64_t counters, int64_t head, const Stream& stream,
                          const std::function<void(char*)>& write) {
  if (work_ready_ && work_key_ == key && work_bytes_ == bytes && work_stream_ == stream) return work_;
  memory::release(device_, work_, work_bytes_);
  work_ = nullptr, work_ready_ = false;
  const StreamScope scope(stream);
  work_ = static_cast<char*>(memory::allocate(device_, bytes));
  work_bytes_ = bytes, work_key_ = key, work_stream_ = stream;
  work_counters_ = Counters(reinterpret_cast<uint32_t*>(work_), counters);
  if (head > 0) {
    const memory::Staging staging(head);
    write(staging.data());
    staging.send(work_ + counters, device_, head, stream);
  }
  work_ready_ = true;
  return work_;
}

}  // namespace lorry::kernels::cuda
