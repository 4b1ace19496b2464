#include "lorry/kernels/cuda/list/list_table.h"

#include <algorithm>
#include <cstring>

#include "lorry/kernels/cuda/list/list.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/upload.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int64_t rounded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// ---- device_table ---------------------------------------------------------------------------------------------------

/// New contents of some entries of a table, by value.
struct Patch {
  static constexpr int kBytes = 3'840;
  int count, words;  ///< words: 64-bit words per entry
  uint64_t* table;
  uint32_t positions[48];
  uint64_t entries[kBytes / 8];

  /// The addresses in `entries` are data to be copied to the table, not arguments.
  void addresses(auto& visit) const { visit(table); }
};
static_assert(sizeof(Patch) <= 4'096);

__global__ void write_entries(const __grid_constant__ Patch patch) {
  lorry::cuda::begin_programmatic();
  for (int i = static_cast<int>(threadIdx.x); i < patch.count * patch.words; i += static_cast<int>(blockDim.x))
    patch.table[int64_t{patch.positions[i / patch.words]} * patch.words + i % patch.words] = patch.entries[i];
}

class DeviceTable final : public ListTable {
 public:
  explicit DeviceTable(Device device) : device_(device) {}
  ~DeviceTable() override { memory::release(device_, memory_, bytes_); }

  void refresh(const TableContent& content, std::vector<uint32_t>& stale, const Stream& stream) override {
    if (entries_ == nullptr || !(stream_ == stream))
      upload(content, stream);
    else if (!stale.empty())
      patch(content, stale, stream);
    stale.clear();
  }

 private:
  void upload(const TableContent& content, const Stream& stream) {
    const int64_t entry_bytes = rounded(content.bytes()), owner_bytes = rounded(int64_t{content.tiles} * 4);
    memory::release(device_, memory_, bytes_);
    memory_ = nullptr, entries_ = nullptr;
    const StreamScope scope(stream);
    const memory::Staging staging(entry_bytes + owner_bytes);
    memory_ = static_cast<char*>(memory::allocate(device_, entry_bytes + owner_bytes));
    bytes_ = entry_bytes + owner_bytes;
    std::memcpy(staging.data(), content.entries, static_cast<size_t>(content.bytes()));
    content.write_owners(reinterpret_cast<uint32_t*>(staging.data() + entry_bytes));
    staging.send(memory_, device_, bytes_, stream);
    stream_ = stream;
    entries_ = memory_;
    owners_ = reinterpret_cast<uint32_t*>(memory_ + entry_bytes);
  }

  void patch(const TableContent& content, std::vector<uint32_t>& stale, const Stream& stream) {
    // A captured patch would not have run yet when the table is next read outside the graph, and replays would undo
    // later patches.
    memory::require_no_capture(device_, static_cast<int64_t>(stale.size()) * content.entry_bytes, stream);
    std::ranges::sort(stale);
    stale.erase(std::unique(stale.begin(), stale.end()), stale.end());
    Patch patch;
    const int most = std::min(static_cast<int>(std::size(patch.positions)), Patch::kBytes / content.entry_bytes);
    if (static_cast<int>(stale.size()) > 2 * most) {  // copying the whole table is faster than several launches
      const memory::Staging staging(content.bytes());
      std::memcpy(staging.data(), content.entries, static_cast<size_t>(content.bytes()));
      return staging.send(entries_, device_, content.bytes(), stream);
    }
    patch.words = content.entry_bytes / 8;
    patch.table = static_cast<uint64_t*>(entries_);
    for (size_t next = 0; next < stale.size();) {
      for (patch.count = 0; patch.count < most && next < stale.size(); ++patch.count, ++next) {
        patch.positions[patch.count] = stale[next];
        std::memcpy(patch.entries + patch.count * patch.words,
                    content.entries + int64_t{stale[next]} * content.entry_bytes,
                    static_cast<size_t>(content.entry_bytes));
      }
      lorry::cuda::launch_with(stream, lorry::cuda::Shape{1, 256}, write_entries, patch);
    }
  }

  const Device device_;
  Stream stream_{};
  char* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// ---- mapped_table ---------------------------------------------------------------------------------------------------

/// Pinned memory that is reused only when the streams noted as readers are done.
class PinnedBlock {
 public:
  explicit PinnedBlock(int64_t bytes) : data_(static_cast<char*>(memory::allocate_pinned(bytes))), bytes_(bytes) {}
  ~PinnedBlock() { memory::release_pinned(data_, bytes_); }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  char* data() const { return data_; }

 private:
  char* data_;
  int64_t bytes_;
};

class MappedTable final : public ListTable {
 public:
  void refresh(const TableContent& content, std::vector<uint32_t>& stale, const Stream& stream) override {
    if (owner_block_ == nullptr) {
      auto owners = std::make_unique<PinnedBlock>(int64_t{content.tiles} * 4);
      content.write_owners(reinterpret_cast<uint32_t*>(owners->data()));
      owner_block_ = std::move(owners);
      owners_ = reinterpret_cast<uint32_t*>(owner_block_->data());
    }
    if (entry_block_ == nullptr || !stale.empty()) {
      auto entries = std::make_unique<PinnedBlock>(content.bytes());
      std::memcpy(entries->data(), content.entries, static_cast<size_t>(content.bytes()));
      if (captured_) of_graphs_.push_back(std::move(entry_block_));
      entry_block_ = std::move(entries);
      entries_ = entry_block_->data();
      captured_ = false;
      stale.clear();
    }
    captured_ = captured_ || lorry::cuda::capturing(stream);
    memory::record_pinned(entry_block_->data(), stream);
    memory::record_pinned(owner_block_->data(), stream);
  }

 private:
  std::unique_ptr<PinnedBlock> entry_block_, owner_block_;
  bool captured_ = false;  ///< a captured graph reads entry_block_
  std::vector<std::unique_ptr<PinnedBlock>> of_graphs_;
};

// ---- managed_table --------------------------------------------------------------------------------------------------

class ManagedTable final : public ListTable {
 public:
  explicit ManagedTable(Device device) : device_(device) {}
  ~ManagedTable() override { memory::release_managed(device_, memory_, bytes_); }

  void refresh(const TableContent& content, std::vector<uint32_t>& stale, const Stream& stream) override {
    const bool is_new = entries_ == nullptr || !(stream_ == stream);
    if (!is_new && stale.empty()) return;
    const int64_t entry_bytes = rounded(content.bytes()), owner_bytes = int64_t{content.tiles} * 4;
    memory::require_no_capture(device_, entry_bytes, stream);
    if (is_new) {
      require_concurrent_access();
      memory::release_managed(device_, memory_, bytes_);
      memory_ = nullptr, entries_ = nullptr;
      const StreamScope scope(stream);
      memory_ = static_cast<char*>(memory::allocate_managed(device_, entry_bytes + owner_bytes));
      bytes_ = entry_bytes + owner_bytes;
    }
    stream.synchronize();  // earlier work of the stream may read the table, or the memory's previous contents
    std::memcpy(memory_, content.entries, static_cast<size_t>(content.bytes()));
    if (is_new) content.write_owners(reinterpret_cast<uint32_t*>(memory_ + entry_bytes));
    stream_ = stream;
    entries_ = memory_;
    owners_ = reinterpret_cast<uint32_t*>(memory_ + entry_bytes);
    stale.clear();
  }

 private:
  /// Without concurrent access the host must not access managed memory while any kernel runs.
  void require_concurrent_access() const {
    int concurrent = 0;
    lorry::cuda::check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device_.index),
                       "cudaDeviceGetAttribute");
    require<DeviceError>(concurrent != 0,
                         "managed_table: {} cannot share managed memory with a running host; expected another strategy",
                         device_);
  }

  const Device device_;
  Stream stream_{};
  char* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace

uint32_t TableContent::first_tile(int e) const {
  if (e == count) return tiles;
  // The part of an entry after its arrays is the same for any number of arrays.
  return reinterpret_cast<const Entry<1>*>(entries + int64_t{e + 1} * entry_bytes -
                                           static_cast<int64_t>(sizeof(Entry<1>)))
      ->first_tile;
}

void TableContent::write_owners(uint32_t* to) const {
  for (int e = 0; e < count; ++e) std::fill(to + first_tile(e), to + first_tile(e + 1), static_cast<uint32_t>(e));
}

std::unique_ptr<ListTable> make_table(Strategy strategy, Device device) {
  switch (strategy) {
    case Strategy::device_table:
      return std::make_unique<DeviceTable>(device);
    case Strategy::mapped_table:
      return std::make_unique<MappedTable>();
    case Strategy::managed_table:
      return std::make_unique<ManagedTable>(device);
    default:
      return nullptr;
  }
}

}  // namespace lorry::kernels::cuda
