#include "lorry/profile/memory_use.h"

#include <algorithm>

#include "lorry/base/error.h"
#include "lorry/device/device.h"
#include "lorry/device/driver_facts.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/process_memory.h"

namespace lorry::profile {

MemoryOwners memory_owners(Device device) {
  device::require_device(device, "memory_owners");
  require<DeviceError>(!device.is_meta(), "memory_owners: meta has no memory; got {}; expected cpu or cuda", device);
  const std::optional<device::ContextCost> context = device::context_cost(device);
  const memory::Stats stats = memory::stats(device);
  const int64_t bound = stats.cache_bound;
  MemoryOwners owners{.in_use = stats.allocated,
                      .cached = std::max<int64_t>(0, stats.reserved - stats.allocated),
                      .rest_of_process = {},
                      .others = {},
                      .cache_bound = bound == INT64_MAX ? std::nullopt : std::optional(bound)};
  if (device.is_cpu()) {
    owners.total = memory::process_memory_limit();
    owners.free = memory::process_memory_available(0);
    // Tensors that were never written have no pages, so the difference may be smaller than what they hold.
    owners.rest_of_process = std::max<int64_t>(0, memory::process_memory_resident() - stats.reserved);
    return owners;
  }
  const device::MemoryUse use = device::memory_use(device);
  owners.total = use.total_bytes;
  owners.free = use.free_bytes;
  const int64_t not_lorrys = std::max<int64_t>(0, use.total_bytes - use.free_bytes - stats.reserved);
  if (context && context->bytes) {
    owners.others = std::min(context->others_bytes, not_lorrys);
    owners.rest_of_process = not_lorrys - *owners.others;
  } else {
    owners.others = not_lorrys;
  }
  return owners;
}

}  // namespace lorry::profile
