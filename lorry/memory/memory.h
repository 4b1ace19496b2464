#pragma once

// Memory for tensors: a caching allocator per device. A released block is kept and handed out again, so a program in a
// steady state never asks the system for memory. Invariant: release(device, p, bytes) names the same byte count as
// allocate(device, bytes) did; blocks are 64-byte aligned.

#include <cstdint>
#include <vector>

#include "lorry/layout/device.h"

namespace lorry::memory {

/// In bytes, except the counts.
struct Stats {
  int64_t allocated = 0;       ///< held by tensors now
  int64_t peak_allocated = 0;  ///< the largest `allocated` since the start or reset_peak
  int64_t reserved = 0;        ///< taken from the system: allocated, plus what is kept for reuse
  int64_t peak_reserved = 0;
  int64_t live_blocks = 0;
  int64_t system_requests = 0;  ///< how often the system was asked: constant in a steady state
  /// The share of reserved memory that no tensor holds.
  double fragmentation() const { return reserved == 0 ? 0.0 : 1.0 - static_cast<double>(allocated) / static_cast<double>(reserved); }
};

/// A block that a tensor holds, and the operator that made it. Only blocks of at least kTrackedBytes are listed.
struct LiveBlock {
  int64_t bytes;
  const char* made_by;
};
inline constexpr int64_t kTrackedBytes = 1 << 20;

/// At least `bytes` bytes, uninitialised; null for 0. When the system has none: frees what is cached, tries once more, then
/// throws OutOfMemory naming the operator, the request, what is held and what is free, and the ten largest live blocks.
void* allocate(Device device, int64_t bytes);
void release(Device device, void* data, int64_t bytes) noexcept;

Stats stats(Device device);
void reset_peak(Device device);
/// Gives cached blocks back to the system (this thread's and the shared ones).
void empty_cache(Device device);
/// Refuses to reserve more than `bytes` from the system; 0 lifts the limit.
void set_limit(Device device, int64_t bytes);
/// Large live blocks, largest first.
std::vector<LiveBlock> snapshot(Device device);

}  // namespace lorry::memory
