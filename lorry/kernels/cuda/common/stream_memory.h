#pragma once

// Device memory that a stream's launches use one after the other: they need no allocation and no fill for it. It is set
// up for 16 streams at a time, when the first of them asks, which waits for the device. A kernel touches it only when
// the work in front of it has ended (begin_programmatic).

#include <atomic>
#include <cstdint>

#include "lorry/device/stream.h"

namespace lorry::kernels::cuda {

struct StreamMemory {
  static constexpr int64_t kCounters = 1024, kSlots = 4096;

  uint32_t* counters;                ///< zero between kernels
  void* slots;                       ///< of 16 bytes each (launch_slots.h); zero until a launch stores something
  std::atomic<uint64_t> launches{};  ///< that got the slots
};

/// The memory of a stream; null while it is captured, because a captured kernel may be replayed at the same time as the
/// stream's other work, if 512 streams of the device have some, and once the device had no memory left.
StreamMemory* memory_of(Stream stream);

}  // namespace lorry::kernels::cuda
