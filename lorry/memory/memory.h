#pragma once

// Memory of tensors: one caching allocator per device. Released blocks are cached and reused, so a program in a steady
// state never asks the system for memory. On the CPU the cache is bounded by LORRY_CPU_CACHE bytes, by default a
// quarter of the memory that this process may use (control groups and resource limits included); on a GPU there is no
// bound. This header has the statistics and the limits; allocate.h has the allocation functions.

#include <cstdint>
#include <vector>

#include "lorry/layout/device.h"

namespace lorry::memory {

/// In bytes, except the counts.
struct Stats {
  int64_t allocated = 0;       ///< held by tensors now
  int64_t peak_allocated = 0;  ///< the largest `allocated` since the start or reset_peak
  int64_t reserved = 0;        ///< taken from the system: allocated plus cached
  int64_t peak_reserved = 0;
  int64_t live_blocks = 0;
  int64_t system_requests = 0;      ///< how often the system was asked: constant in a steady state
  int64_t waiting = 0;              ///< released, but work on another stream may still use it
  int64_t segments = 0;             ///< number of pieces of memory taken from the system
  int64_t cache_bound = INT64_MAX;  ///< set_cache_bound; INT64_MAX: no bound
  int64_t retries = 0;              ///< how often the cache was emptied because the system had no memory left
  /// The share of reserved memory that no tensor holds.
  double fragmentation() const {
    return reserved == 0 ? 0.0 : 1.0 - static_cast<double>(allocated) / static_cast<double>(reserved);
  }
};

/// A block in use, and the operator that allocated it ("" outside operators).
struct LiveBlock {
  int64_t bytes;
  const char* made_by;
};

/// Statistics of the device's allocator. On meta, which takes no memory: what a GPU's allocator would report.
Stats stats(Device device);
/// Sets the peaks to the current values.
void reset_peak(Device device);
/// Returns cached blocks to the system: this thread's and the shared ones; other threads' at their next call.
void empty_cache(Device device);
/// Limits the memory reserved from the system to `bytes`; 0 removes the limit.
void set_limit(Device device, int64_t bytes);
/// Limits the cache (reserved memory that no tensor holds) to about `bytes`; more than that returns to the system at
/// once. Small blocks cached by threads (up to 256 KB per size) count too; a thread returns them at its next call.
/// Returns the previous bound. Throws ValueError.
int64_t set_cache_bound(Device device, int64_t bytes);
/// Blocks in use, largest first.
std::vector<LiveBlock> snapshot(Device device);
/// Bytes of the device's memory that are in use: by tensors and the cache, by this process's context and libraries
/// (half a gigabyte on a GPU), and by other processes.
int64_t device_use(Device device);

}  // namespace lorry::memory
