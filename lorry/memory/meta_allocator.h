#pragma once

// Memory of the device type meta, which nobody can read: blocks are counted, and lie at addresses that no process has.
// So a run on meta tells what the same run would take.
//
// Index 0 is the users' device. Its blocks are cached and rounded as a GPU's, so that what is reserved there is what a
// GPU's allocator would reserve. Every other index stands for one real device (`stand_in`) and is used under an
// Estimate alone. It counts the bytes that were asked for, so that an estimate does not depend on what was freed
// before. A real allocator rounds: up to a quarter of a request is added, and the least block is 64 or 512 bytes.

#include <mutex>

#include "lorry/memory/caching_allocator.h"

namespace lorry::memory {

/// Throws DeviceError naming `where` for an index that stands for nothing.
CachingAllocator& meta_allocator(Device device, const char* where);

/// The meta device that stands for a device: meta:1 for the CPU, meta:2 and up for GPUs. One on meta is its own.
constexpr Device stand_in(Device device) {
  return device.is_meta()  ? device
         : device.is_cpu() ? Device{DeviceType::meta, 1}
                           : Device{DeviceType::meta, static_cast<int8_t>(2 + device.index)};
}
/// What a stand-in stands for; any other device itself, the users' meta device among them.
constexpr Device stood_for(Device device) {
  return !device.is_meta() || device.index == 0 ? device
         : device.index == 1                    ? kCPU
                                                : Device{DeviceType::cuda, static_cast<int8_t>(device.index - 2)};
}

/// Holds the stand-ins while it lives: their counts are of this thread's work alone. Another thread waits. Not nested.
class Estimate {
 public:
  Estimate();

 private:
  std::scoped_lock<std::mutex> lock_;
};

}  // namespace lorry::memory
