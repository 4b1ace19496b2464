#pragma once

// The allocator of the device type meta. Blocks are only counted; their addresses are not mapped and cannot be read. So
// a run on meta measures how much memory the same run would need on a real device.
//
// meta:0 is the device that users see. Its blocks are cached and rounded like a GPU's, so it reserves as much as a
// GPU's allocator would. Every other index represents one real device (`stand_in`) and is used only inside an Estimate.
// It counts requested bytes without rounding, so that an estimate does not depend on earlier allocations. A real
// allocator rounds: it adds up to a quarter of a request, and the smallest block has 64 or 512 bytes.

#include <mutex>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

/// Throws DeviceError that names `where` for an index that represents no device.
CachingAllocator& meta_allocator(Device device, const char* where);

/// The meta device that represents a device: meta:1 for the CPU, meta:2 and up for GPUs. A meta device is returned as
/// it is.
constexpr Device stand_in(Device device) {
  return device.is_meta()  ? device
         : device.is_cpu() ? Device{DeviceType::meta, 1}
                           : Device{DeviceType::meta, static_cast<int8_t>(2 + device.index)};
}
/// The device that a stand-in represents. Any other device, meta:0 included, is returned as it is.
constexpr Device represented_device(Device device) {
  return !device.is_meta() || device.index == 0 ? device
         : device.index == 1                    ? kCPU
                                                : Device{DeviceType::cuda, static_cast<int8_t>(device.index - 2)};
}

/// Exclusive use of the stand-ins for a scope, so that their counts are those of this thread. Other threads wait. Must
/// not be nested.
class Estimate {
 public:
  Estimate();

 private:
  std::scoped_lock<std::mutex> lock_;
};

}  // namespace lorry::memory
