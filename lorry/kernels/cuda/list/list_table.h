#pragma once

// Tables of lists: where the strategies device_table, mapped_table and managed_table put the entries of a list and the
// owners of its tiles for kernels to read.
//
//   device    in device memory. Copies and patches are ordered by the stream, so that nothing waits; they cannot be
//             captured, since a graph would repeat them
//   mapped    in pinned host memory, read over the link. The host writes it at once while earlier kernels may still
//             read it, so entries that change are written to another block; the allocator hands the old one out again
//             when the streams that read it have passed. A graph keeps the block that it was captured with
//   managed   in managed memory, written by the host where it is: its pages move there and back. The host waits for
//             the stream first

#include <memory>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/device/stream.h"

namespace lorry::kernels::cuda {

/// What a table holds, in host memory.
struct TableContent {
  const std::byte* entries;
  int count, entry_bytes;  ///< of entries
  uint32_t tiles;

  int64_t bytes() const { return int64_t{count} * entry_bytes; }
  /// Of entry e, or `tiles` for the one behind the last.
  uint32_t first_tile(int e) const;
  void write_owners(uint32_t* to) const;
};

class ListTable {
 public:
  ListTable() = default;
  virtual ~ListTable() = default;
  ListTable(const ListTable&) = delete;
  ListTable& operator=(const ListTable&) = delete;

  /// Makes the table right for work on `stream`, when the entries at `stale` have changed since the last time, and
  /// empties `stale`. Throws OutOfMemory, and CaptureError where the stream is captured and the table cannot be
  /// written.
  virtual void refresh(const TableContent& content, std::vector<uint32_t>& stale, const Stream& stream) = 0;
  const void* entries() const { return entries_; }
  /// The number of the entry that each tile belongs to.
  const uint32_t* owners() const { return owners_; }

 protected:
  void* entries_ = nullptr;
  uint32_t* owners_ = nullptr;
};

/// Null for a strategy without a table.
std::unique_ptr<ListTable> make_table(Strategy strategy, Device device);

}  // namespace lorry::kernels::cuda
