#include "lorry/kernels/cuda/list/list.h"

#include <algorithm>

#include "lorry/memory/allocate.h"
#include "lorry/memory/upload.h"

namespace lorry::kernels::cuda {
namespace {

/// Some entries of a table, by value.
struct Patch {
  static constexpr int kBytes = 3'840;
  int count, words;  ///< words: 64-bit ones of an entry
  uint64_t* table;
  uint32_t places[48];
  uint64_t entries[kBytes / 8];
};
static_assert(sizeof(Patch) <= 4'096);

__global__ void write_entries(const __grid_constant__ Patch patch) {
  for (int i = static_cast<int>(threadIdx.x); i < patch.count * patch.words; i += static_cast<int>(blockDim.x))
    patch.table[int64_t{patch.places[i / patch.words]} * patch.words + i % patch.words] = patch.entries[i];
}

constexpr int64_t kTicketBytes = 16;

constexpr int64_t rounded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

// Arguments win while they take one launch: nothing is uploaded when a tensor moves, and warps need not read who owns
// their tile, which is worth 2 % of a long step. 32 KB cost the host 2 us more than a table that is there, and a second
// launch more than that.
Strategy quickest(int count, int entry_bytes) {
  const auto fits = [&](int bytes) { return count <= (bytes - kBodyBytes - 16) / entry_bytes; };
  return fits(4'096) ? Strategy::kernel_args_4k : fits(32'764) ? Strategy::kernel_args_32k : Strategy::device_table;
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
  if (known->strategy_ != Strategy::device_table) {
    known->stale_.clear();
    return *known;
  }
  if (known->table_ == nullptr || !(known->stream_ == stream))
    known->upload(stream);
  else if (!known->stale_.empty())
    known->patch(stream);
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
  for (const ListEntry& entry : entries) places_.push_back(entry.count > 0 ? count_++ : -1);
  entries_.resize(static_cast<size_t>(count_) * entry_bytes_);
  int64_t tiles = 0;
  for (size_t e = 0; e < entries.size(); ++e) {
    if (places_[e] < 0) continue;
    require<ValueError>(entries[e].count <= kMaxCount && entries[e].word <= kMaxWord && entries[e].number <= kMaxWord,
                        "entry {} does not fit; got {} elements, word {}, number {}; expected at most {}, {} and {}", e,
                        entries[e].count, entries[e].word, entries[e].number, kMaxCount, kMaxWord, kMaxWord);
    std::memcpy(&entries_[static_cast<size_t>(places_[e]) * entry_bytes_], entries[e].at, 8 * arrays_);
    Entry<1>& entry = last_part(places_[e]);
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
  if (strategy_ == Strategy::automatic) strategy_ = quickest(count_, entry_bytes_);
}

Entry<1>& CudaList::last_part(int place) {
  return *reinterpret_cast<Entry<1>*>(&entries_[static_cast<size_t>(place) * entry_bytes_] + 8 * (arrays_ - 1));
}

uint32_t CudaList::first_tile(int place) { return place == count_ ? tiles_ : last_part(place).first_tile; }

CudaList::~CudaList() {
  memory::release(device_, memory_, memory_bytes_);
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
  const int32_t place = places_[at];
  if (place < 0) return true;
  const ListEntry& moved = list.entries()[at];
  Entry<1>& entry = last_part(place);
  // Tiles may start elsewhere now. One more or less would move all that follow.
  const uint8_t head = head_of(moved);
  if (tiles_of(moved.count, head, geometry_.tile) != int64_t{first_tile(place + 1)} - first_tile(place)) return false;
  std::memcpy(&entries_[static_cast<size_t>(place) * entry_bytes_], moved.at, 8 * arrays_);
  entry.head = head;
  stale_.push_back(static_cast<uint32_t>(place));
  return true;
}

void CudaList::upload(const Stream& stream) {
  const int64_t entries = rounded(static_cast<int64_t>(entries_.size())), owners = rounded(int64_t{tiles_} * 4);
  memory::release(device_, memory_, memory_bytes_);
  memory_ = nullptr, table_ = nullptr, ticket_ = {};
  stale_.clear();
  const StreamScope scope(stream);
  const memory::Staging staging(entries + owners);
  memory_ = static_cast<char*>(memory::allocate(device_, entries + owners + kTicketBytes));
  memory_bytes_ = entries + owners + kTicketBytes;
  std::memcpy(staging.data(), entries_.data(), entries_.size());
  auto* owner = reinterpret_cast<uint32_t*>(staging.data() + entries);
  for (int e = 0; e < count_; ++e)
    std::fill(owner + first_tile(e), owner + first_tile(e + 1), static_cast<uint32_t>(e));
  staging.send(memory_, device_, entries + owners, stream);
  stream_ = stream;
  table_ = memory_;
  owners_ = reinterpret_cast<uint32_t*>(memory_ + entries);
  ticket_ = Counters(reinterpret_cast<uint32_t*>(memory_ + entries + owners), kTicketBytes);
}

void CudaList::patch(const Stream& stream) {
  // A captured patch would not have run when the table is next read outside the graph, and replays would undo later
  // ones.
  memory::require_no_capture(device_, static_cast<int64_t>(stale_.size()) * entry_bytes_, stream);
  std::ranges::sort(stale_);
  stale_.erase(std::unique(stale_.begin(), stale_.end()), stale_.end());
  Patch patch;
  const int most = std::min(static_cast<int>(std::size(patch.places)), Patch::kBytes / entry_bytes_);
  if (static_cast<int>(stale_.size()) > 2 * most) {  // a copy of all is quicker than several launches
    const memory::Staging staging(static_cast<int64_t>(entries_.size()));
    std::memcpy(staging.data(), entries_.data(), entries_.size());
    staging.send(table_, device_, static_cast<int64_t>(entries_.size()), stream);
    stale_.clear();
    return;
  }
  patch.words = entry_bytes_ / 8;
  patch.table = static_cast<uint64_t*>(table_);
  for (size_t next = 0; next < stale_.size();) {
    for (patch.count = 0; patch.count < most && next < stale_.size(); ++patch.count, ++next) {
      patch.places[patch.count] = stale_[next];
      std::memcpy(patch.entries + patch.count * patch.words,
                  &entries_[static_cast<size_t>(stale_[next]) * entry_bytes_], entry_bytes_);
    }
    lorry::cuda::launch_with(stream, lorry::cuda::Shape{1, 256}, write_entries, patch);
  }
  stale_.clear();
}

Counters& CudaList::ticket(const Stream& stream) {
  // Kernels of two streams would count each other's blocks: a stream has a ticket of its own.
  if (ticket_.data() == nullptr || !(stream_ == stream)) {
    const StreamScope scope(stream);
    memory::release(device_, memory_, memory_bytes_);
    memory_ = nullptr, ticket_ = {};
    memory_ = static_cast<char*>(memory::allocate(device_, kTicketBytes));
    memory_bytes_ = kTicketBytes;
    ticket_ = Counters(reinterpret_cast<uint32_t*>(memory_), kTicketBytes);
    stream_ = stream;
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
