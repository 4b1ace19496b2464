#pragma once

// Who uses a device's memory: Lorry's tensors, Lorry's cache, the rest of this process, other processes.

#include <cstdint>
#include <optional>

#include "lorry/layout/device.h"

namespace lorry::profile {

/// In bytes. What is not known is none.
struct MemoryOwners {
  int64_t total = 0;   ///< of the device; on the CPU what this process may use (control groups and limits included)
  int64_t in_use = 0;  ///< held by tensors
  int64_t cached = 0;  ///< taken from the system and free for the next tensor
  /// GPU: this process's context and libraries, and what CUDA code beside Lorry has allocated. CPU: the rest of the
  /// process's resident memory. On a GPU none if the process had a context before device::context_cost was first asked,
  /// or without NVML; then it is part of `others`.
  std::optional<int64_t> rest_of_process;
  /// GPU: used by other processes and by the driver when this process's context was created. CPU: none.
  std::optional<int64_t> others;
  int64_t free = 0;                    ///< of the device; on the CPU what this process may still use
  std::optional<int64_t> cache_bound;  ///< the most that is cached (memory::set_cache_bound); none: no bound
};

/// Who uses the device's memory now. On a GPU it creates the context if there is none. Throws DeviceError for meta and
/// for a device that does not exist.
MemoryOwners memory_owners(Device device);

}  // namespace lorry::profile
