#pragma once

// Beside the capture of a stream into a graph: which calls are safe, and whether there is one.

#include <cuda_runtime_api.h>

#include "lorry/device/stream.h"

namespace lorry::cuda {

/// While a stream is captured, calls that could disturb a capture are refused to the thread. In this scope they are allowed: for what
/// disturbs none, such as memory that no captured work is to free.
class Unrestricted {
 public:
  Unrestricted() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Unrestricted() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Unrestricted(const Unrestricted&) = delete;
  Unrestricted& operator=(const Unrestricted&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Whether what is enqueued on the stream is recorded instead of run. True of the default stream too while a capture forbids its use.
bool capturing(Stream stream) noexcept;

}  // namespace lorry::cuda
