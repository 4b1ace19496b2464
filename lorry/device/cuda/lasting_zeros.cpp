#include "lorry/device/cuda/lasting_zeros.h"

#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/launches.h"
#include "lorry/device/stream.h"

namespace lorry::cuda {

void* lasting_zeros(Device device, size_t bytes) {
  const DeviceGuard guard(device.index);
  const Unrestricted scope(guard);
  const device::NotCaptured outside;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(error, "cudaMalloc");
  // On a stream of its own, because a capture may forbid the default stream.
  const OwnedStream stream(device);
  const device::HideLaunches hidden;  // the observer may be the capture
  fill_bytes(stream, memory, 0, static_cast<int64_t>(bytes));
  const waits::Reason setup(waits::Wait::setup);
  stream.synchronize();
  return memory;
}

}  // namespace lorry::cuda
