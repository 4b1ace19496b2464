#pragma once

// Blocks of the caching allocators (memory.h), for storages and kernels. Invariant: release(device, p, bytes) names the
// same byte count as allocate(device, bytes) did; blocks are 64-byte aligned on the CPU, 512-byte aligned on a GPU.
//
// On a GPU, memory is stream-ordered (caching_allocator.h): a block belongs to the stream that was current when it was
// allocated, and may be released while that stream still uses it. Uses on other streams must be noted by record_stream.

#include <cstdint>
#include <utility>

#include "lorry/device/stream.h"
#include "lorry/layout/device.h"

namespace lorry::memory {

/// Returns at least `bytes` bytes, uninitialised; null for 0. If the system has no memory, empties the cache and tries
/// once more, then throws OutOfMemory with the operator, the request, the memory in use, the free memory, and the ten
/// largest live blocks. On the CPU a request is also refused if the system would grant it, but using all of it would
/// exceed the memory left to this process. Throws DeviceError for a device that does not exist.
void* allocate(Device device, int64_t bytes);
void release(Device device, void* data, int64_t bytes) noexcept;
/// Notes that work enqueued on `stream` uses the block that starts at `data`. After its release, the block is reused
/// only when that work is done. Does nothing for memory that the allocator does not own (a foreign storage's).
void record_stream(Device device, void* data, Stream stream);

namespace detail {
/// A private pool of one allocator; no pool if `allocator` is null.
struct PoolPart {
  void* allocator;
  uint32_t id;
};
/// The two halves of a Pool: memory of its device, and pinned host memory.
struct PoolParts {
  PoolPart device{}, pinned{};
  /// The number of the allocator's pool; 0 if it has none here.
  uint32_t of(const void* allocator) const {
    return device.allocator == allocator ? device.id : pinned.allocator == allocator ? pinned.id : 0;
  }
};
/// The pool that this thread allocates from.
inline constinit thread_local PoolParts t_pool{};
}  // namespace detail

/// Memory reserved for a device graph: memory of the device and pinned host memory. Allocations inside a PoolScope come
/// from the pool and return to it; nobody else can use this memory, not even when memory is short. When the Pool is
/// destroyed, its free memory returns to the system at once, and blocks that tensors hold return when they are
/// released.
class Pool {
 public:
  explicit Pool(Device device);
  ~Pool();
  Pool(Pool&& other) noexcept : parts_(std::exchange(other.parts_, {})) {}
  Pool& operator=(Pool&& other) noexcept {
    std::swap(parts_, other.parts_);
    return *this;
  }

  /// Bytes that it has taken from the system, free ones included.
  int64_t reserved() const;

 private:
  friend class PoolScope;
  friend class Leases;
  detail::PoolParts parts_{};
};

/// Makes this thread allocate from a pool, for a scope. The Pool must outlive the scope.
class PoolScope {
 public:
  explicit PoolScope(const Pool& pool) : before_(std::exchange(detail::t_pool, pool.parts_)) {}
  ~PoolScope() { detail::t_pool = before_; }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  detail::PoolParts before_;
};

/// Pinned host memory, which a GPU can read and write asynchronously and at the link's speed; ordinary memory if there
/// is no GPU. Copies and kernels that use it must be noted by record_pinned; after its release, the block is reused
/// only when that work is done. Throws OutOfMemory.
void* allocate_pinned(int64_t bytes);
void record_pinned(void* data, Stream stream);
void release_pinned(void* data, int64_t bytes) noexcept;

/// Managed memory, whose pages the driver moves to the device or to the host when they are accessed; ordinary memory if
/// the device is a CPU. It is created on the device, and only if it fits there: evicting pages can stall a GPU. Like
/// memory from `allocate` it is stream-ordered and cached, in a cache of its own. Throws OutOfMemory.
void* allocate_managed(Device device, int64_t bytes);
void record_managed(Device device, void* data, Stream stream);
void release_managed(Device device, void* data, int64_t bytes) noexcept;

}  // namespace lorry::memory
