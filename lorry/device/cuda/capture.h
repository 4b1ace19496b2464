#pragma once

// Calls during stream capture: whether a stream is being captured, and a scope that allows calls which CUDA refuses
// then.

#include <cuda_runtime_api.h>

#include "lorry/device/cuda/runtime.h"
#include "lorry/device/stream.h"

namespace lorry::cuda {

/// While a stream is captured, CUDA refuses calls of the capturing thread that could disturb the capture, such as
/// allocations. This scope allows them: for calls that do not affect the captured work. Needs a DeviceGuard, because on
/// a thread without a context the exchange of the mode would create a context on device 0.
class [[nodiscard]] Unrestricted {
 public:
  /// Does nothing if the guard failed.
  explicit Unrestricted(const DeviceGuard& guard) : exchanged_(guard.holds()) { exchange(); }
  ~Unrestricted() { exchange(); }
  Unrestricted(const Unrestricted&) = delete;
  Unrestricted& operator=(const Unrestricted&) = delete;

 private:
  void exchange() {
    if (exchanged_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }

  const bool exchanged_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Whether work enqueued on the stream is recorded instead of run. Also true for the default stream while a capture
/// forbids its use.
bool capturing(Stream stream) noexcept;

}  // namespace lorry::cuda
