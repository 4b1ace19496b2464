#pragma once

// Blocks of the caching allocators (memory.h), for storages and kernels. Invariant: release(device, p, bytes) names the
// same byte count as allocate(device, bytes) did; blocks are 64-byte aligned on the CPU, 512-byte aligned on a GPU.
//
// On a GPU memory is ordered by streams (caching_allocator.h): a block belongs to the stream that was current when it
// was allocated, and may be released while that stream still works on it. A use on any other stream is noted by
// record_stream.

#include <cstdint>
#include <utility>

#include "lorry/device/stream.h"
#include "lorry/layout/device.h"

namespace lorry::memory {

/// At least `bytes` bytes, uninitialised; null for 0. When the system has none: frees what is cached, tries once more,
/// then throws OutOfMemory naming the operator, the request, what is held and what is free, and the ten largest live
/// blocks. The CPU's memory is refused where touching it would exceed what the system leaves to this process, though
/// the system would hand it out. Throws DeviceError for a device that does not exist.
void* allocate(Device device, int64_t bytes);
void release(Device device, void* data, int64_t bytes) noexcept;
/// Notes that work enqueued on `stream` uses the block that starts at `data`: once released, it is handed out again
/// only when that work is done. Memory that is not the allocator's own (a foreign storage's) is left to its owner.
void record_stream(Device device, void* data, Stream stream);

namespace detail {
/// A private pool of an allocator; none where that is null.
struct PoolPart {
  void* allocator;
  uint32_t id;
};
/// What is allocated for a pool: memory of its device, and pinned memory of the host.
struct PoolParts {
  PoolPart device{}, pinned{};
  /// The allocator's pool among them; 0 where it has none.
  uint32_t of(const void* allocator) const {
    return device.allocator == allocator ? device.id : pinned.allocator == allocator ? pinned.id : 0;
  }
};
/// The pool in force on this thread.
inline constinit thread_local PoolParts t_pool{};
}  // namespace detail

/// Memory that a device graph keeps, the device's and pinned memory of the host: what is allocated inside a PoolScope
/// comes from the pool and returns to it, and nobody else is given it, not even when memory is short. When the Pool
/// ends, its free memory goes back to the system, and what tensors still hold follows as they release it. On the CPU,
/// where nothing is replayed at old addresses, it does nothing.
class Pool {
 public:
  explicit Pool(Device device);
  ~Pool();
  Pool(Pool&& other) noexcept : parts_(std::exchange(other.parts_, {})) {}
  Pool& operator=(Pool&& other) noexcept {
    std::swap(parts_, other.parts_);
    return *this;
  }

 private:
  friend class PoolScope;
  detail::PoolParts parts_{};
};

/// Puts a pool in force on this thread for a scope. The Pool must outlive it.
class PoolScope {
 public:
  explicit PoolScope(const Pool& pool) : before_(std::exchange(detail::t_pool, pool.parts_)) {}
  ~PoolScope() { detail::t_pool = before_; }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  detail::PoolParts before_;
};

/// Host memory that a GPU reads and writes at the speed of the link and asynchronously; ordinary memory where there is
/// no GPU. A copy or kernel enqueued on it is noted by record_pinned, and the released block is handed out again only
/// when that work is done. Throws OutOfMemory.
void* allocate_pinned(int64_t bytes);
void record_pinned(void* data, Stream stream);
void release_pinned(void* data, int64_t bytes) noexcept;

/// Memory of a device that its driver moves to whoever touches it, page by page; ordinary memory where the device is a
/// CPU. It is made on the device, and only while that has room for it: a driver that must evict pages can bring a GPU
/// to a stop. Otherwise as by allocate: ordered by streams, in a cache of its own. Throws OutOfMemory.
void* allocate_managed(Device device, int64_t bytes);
void record_managed(Device device, void* data, Stream stream);
void release_managed(Device device, void* data, int64_t bytes) noexcept;

}  // namespace lorry::memory
