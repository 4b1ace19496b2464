#pragma once

// Tables of lists: where the strategies device_table, mapped_table and managed_table store the entries of a list, and
// the owner of each tile, for kernels to read.
//
//   device    in device memory. Copies and patches are ordered by the stream, so nothing waits. They cannot be
//             captured, because a graph would repeat them
//   mapped    in pinned host memory, which kernels read over the link. The host writes at once while earlier kernels
//             may still read, so changed entries are written to another block; the allocator reuses the old block when
//             the streams that read it are done. A captured graph keeps its block
//   managed   in managed memory, which the host writes in place: its pages move to the host and back. The host waits
//             for the stream first

#include <memory>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/device/stream.h"

namespace lorry::kernels::cuda {

/// The contents of a table, in host memory.
struct TableContent {
  const std::byte* entries;
  int count, entry_bytes;  ///< of the entries
  uint32_t tiles;

  int64_t bytes() const { return int64_t{count} * entry_bytes; }
  /// The first tile of entry e; `tiles` if e is the number of entries.
  uint32_t first_tile(int e) const;
  void write_owners(uint32_t* to) const;
};

class ListTable {
 public:
  ListTable() = default;
  virtual ~ListTable() = default;
  ListTable(const ListTable&) = delete;
  ListTable& operator=(const ListTable&) = delete;

  /// Updates the table for work on `stream`. The entries in `stale` have changed since the last call; `stale` is
  /// emptied. Throws OutOfMemory, and CaptureError if the stream is being captured and the table cannot be written.
  virtual void refresh(const TableContent& content, std::vector<uint32_t>& stale, const Stream& stream) = 0;
  const void* entries() const { return entries_; }
  /// The entry number of each tile.
  const uint32_t* owners() const { return owners_; }

 protected:
  void* entries_ = nullptr;
  uint32_t* owners_ = nullptr;
};

/// Returns null for strategies without a table.
std::unique_ptr<ListTable> make_table(Strategy strategy, Device device);

}  // namespace lorry::kernels::cuda
