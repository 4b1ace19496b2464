#pragma once

// What every CUDA source of Lorry builds on: checked calls, the device that a thread talks to, the facts kernels are shaped by,
// and the latch of a fault. A CUDA context that has met a fault (an illegal address, a failed assertion) answers every later call
// with it; the latch keeps which call first saw it and which operators were in flight, and every later error repeats that.

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>

#include "lorry/device/stream.h"

namespace lorry::cuda {

/// How many devices can be used; 0 without a driver, and `why_none` says why.
int device_count();
std::string why_none();

/// What kernels are shaped by, read once a device.
struct Properties {
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  ///< the most that a kernel may opt into
  int l2_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0
};
const Properties& properties(int device);

namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] void failed(cudaError_t error, const char* call);
void make_current_slowly(int device);
extern bool g_several;  ///< more than one device: whose turn it is has to be asked
extern bool g_blocking;  ///< CUDA_LAUNCH_BLOCKING=1: each launch waits, so that errors come from the call that made them
void wait_after_launch(Stream stream);

/// The last launches of the process, for the message of a fault.
struct InFlight {
  static constexpr uint32_t kLength = 64;
  std::atomic<uint32_t> next{0};
  std::atomic<const char*> operators[kLength] = {};
  void note(const char* operator_name) {
    operators[next.fetch_add(1, std::memory_order_relaxed) % kLength].store(operator_name, std::memory_order_relaxed);
  }
};
extern InFlight g_in_flight;
}  // namespace detail

/// Throws unless the call succeeded: OutOfMemory, or CudaError that names the call, and the fault when the context has met one.
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]] detail::failed(error, call);
}

/// Makes the device this thread's, for calls that act on "the current device".
inline void make_current(int device) {
  if (detail::g_several) [[unlikely]] detail::make_current_slowly(device);
}

inline cudaStream_t handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace lorry::cuda
