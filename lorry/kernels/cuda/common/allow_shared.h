#pragma once

// Dynamic shared memory beyond 48 KB, which a kernel has to ask for.

#include <atomic>

#include "lorry/device/cuda/launch.h"

namespace lorry::kernels::cuda {

/// Allows a kernel up to `bytes` of dynamic shared memory, once per kernel and device. All callers must pass the same
/// value.
template <auto kKernel>
void allow_shared_once(int device, size_t bytes) {
  static std::atomic<bool> done[kMaxDevices] = {};
  if (done[device].load(std::memory_order_relaxed)) return;
  const lorry::cuda::DeviceGuard guard(device);
  lorry::cuda::allow_shared(kKernel, bytes);
  done[device].store(true, std::memory_order_relaxed);
}

}  // namespace lorry::kernels::cuda
