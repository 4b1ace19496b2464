#pragma once

// What every CUDA source of Lorry builds on: checked calls, the device that a thread talks to, the facts kernels are
// shaped by, and the latch of a fault. A CUDA context that has met a fault (an illegal address, a failed assertion)
// answers every later call with it; the latch keeps which call first saw it and which operators were in flight, and
// every later error repeats that.

#include <cuda_runtime_api.h>

#include <atomic>
#include <new>
#include <string>

#include "lorry/device/stream.h"

struct CUctx_st;  // what the driver's CUcontext points to

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
extern bool g_several;  ///< more than one device, so that the current one matters
/// CUDA_LAUNCH_BLOCKING=1: each launch waits, so that errors come from the call that made them
extern bool g_blocking;
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

/// The driver's stack of contexts of each thread, its functions returning 0 for success. Tests put their own here.
struct ContextStack {
  int (*current)(CUctx_st** context);
  int (*push)(CUctx_st* context);
  int (*pop)(CUctx_st** context);
  std::atomic<CUctx_st*> contexts[kMaxDevices];  ///< of the devices, once they are used
};
extern ContextStack g_stack;

enum class Pushed { no, yes, failed };
/// Puts the device's context on top of the thread's stack unless it is there.
Pushed push_device(int device, cudaError_t* error) noexcept;
void pop_device() noexcept;
}  // namespace detail

/// Throws unless the call succeeded: OutOfMemory, or CudaError that names the call, and the fault when the context has
/// met one.
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    detail::failed(error, call);
}

/// Makes a device the thread's current one for a scope. Afterwards the thread has what it had, so that kernels that are
/// not Lorry's run where their author expects. The driver's stack of contexts is used rather than cudaSetDevice: a
/// thread that had no device has none again, where setting device 0 back would make a context there. With one device a
/// guard costs the test of a flag.
class [[nodiscard]] DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (!detail::g_several) [[likely]]
      return;
    cudaError_t error = cudaSuccess;
    pushed_ = detail::push_device(device, &error);
    if (pushed_ == detail::Pushed::failed) [[unlikely]]
      detail::failed(error, "cuCtxPushCurrent");
  }
  /// For callers that must not throw: they ask `holds`.
  DeviceGuard(int device, std::nothrow_t) noexcept {
    cudaError_t error = cudaSuccess;
    if (detail::g_several) [[unlikely]]
      pushed_ = detail::push_device(device, &error);
  }
  ~DeviceGuard() {
    if (pushed_ == detail::Pushed::yes) [[unlikely]]
      detail::pop_device();
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  bool holds() const { return pushed_ != detail::Pushed::failed; }

 private:
  detail::Pushed pushed_ = detail::Pushed::no;
};

/// A device for calls that belong to none, such as those for host memory, which need a context all the same: the first
/// that this process has worked on, so that none gets a context for their sake; else the thread's own.
int device_in_use() noexcept;

inline cudaStream_t handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace lorry::cuda
