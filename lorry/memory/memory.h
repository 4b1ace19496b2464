#pragma once

// Memory for tensors: a caching allocator per device. A released block is kept and handed out again, so a program in a
// steady state never asks the system for memory. What is kept stays within a bound: on the CPU LORRY_CPU_CACHE bytes,
// by default a quarter of the memory that this process may use (control groups and resource limits included); on a GPU
// there is none. What it holds, and how to bound it, is here; allocating is in allocate.h.

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
  int64_t waiting = 0;          ///< released, but work on another stream may still use it
  int64_t segments = 0;         ///< pieces that `reserved` consists of
  int64_t retries = 0;          ///< how often the cache was given back because the system had no more
  /// The share of reserved memory that no tensor holds.
  double fragmentation() const {
    return reserved == 0 ? 0.0 : 1.0 - static_cast<double>(allocated) / static_cast<double>(reserved);
  }
};

/// A block that a tensor holds, and the operator that made it ("" outside any).
struct LiveBlock {
  int64_t bytes;
  const char* made_by;
};

/// What the allocator of the device holds and has held. On meta, where nothing takes memory, what a GPU would hold.
Stats stats(Device device);
/// The peaks begin again at what is held now.
void reset_peak(Device device);
/// Gives cached blocks back to the system (this thread's and the shared ones; other threads' at their next call).
void empty_cache(Device device);
/// Refuses to reserve more than `bytes` from the system; 0 lifts the limit.
void set_limit(Device device, int64_t bytes);
/// Keeps at most about `bytes` of reserved memory that no tensor holds, from now on; what is more goes back to the
/// system at once. Small blocks that threads keep for themselves (256 KB of a size) count, and go back at each thread's
/// next call. Returns the bound until now. Throws ValueError.
int64_t set_cache_bound(Device device, int64_t bytes);
/// Live blocks, largest first.
std::vector<LiveBlock> snapshot(Device device);
/// Bytes of the device's memory in use by anybody: tensors and cache, and what no allocator counts, which is this
/// process's context and libraries (half a gigabyte on a GPU) and other processes.
int64_t device_use(Device device);

}  // namespace lorry::memory
