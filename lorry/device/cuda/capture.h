#pragma once

// Beside the capture of a stream into a graph: which calls are safe, and whether there is one.

#include <cuda_runtime_api.h>

#include "lorry/device/cuda/runtime.h"
#include "lorry/device/stream.h"

namespace lorry::cuda {

/// While a stream is captured, calls that could disturb a capture are refused to the thread. In this scope they are
/// allowed: for what disturbs none, such as memory that no captured work is to free. It stands inside a guard: on a
/// thread without a context the exchange itself makes that of the first device.
class [[nodiscard]] Unrestricted {
 public:
  /// Does nothing inside a guard that failed.
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

/// Whether what is enqueued on the stream is recorded instead of run. True of the default stream too while a capture
/// forbids its use.
bool capturing(Stream stream) noexcept;

}  // namespace lorry::cuda
