#pragma once

// Basics of all CUDA code: checked calls, the current device of a thread, device properties, and the record of a fault.
// After a fault (an illegal address, a failed assertion), every later call in that CUDA context fails. Lorry records
// the call that first returned the fault and the operators that were in flight; every later error repeats both.

#include <cuda_runtime_api.h>

#include <atomic>
#include <new>
#include <string>

#include "lorry/device/stream.h"

struct CUctx_st;  // what the driver's CUcontext points to

namespace lorry::cuda {

/// The number of devices that can be used. If it is 0, why_none() returns the reason.
int device_count();
std::string why_none();

/// Properties on which launch shapes depend. Read once per device.
struct Properties {
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  ///< the maximum, which a kernel must opt into (allow_shared)
  int l2_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0
};
const Properties& properties(int device);

namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] void failed(cudaError_t error, const char* call);
extern bool g_several;  ///< there is more than one device, so the current device matters
/// CUDA_LAUNCH_BLOCKING=1: every launch waits for its end, so that the call that caused an error throws it
extern bool g_blocking;
void wait_after_launch(Stream stream);

/// The operators of the process's last launches, for the message of a fault.
struct InFlight {
  static constexpr uint32_t kLength = 64;
  std::atomic<uint32_t> next{0};
  std::atomic<const char*> operators[kLength] = {};
  void note(const char* operator_name) {
    operators[next.fetch_add(1, std::memory_order_relaxed) % kLength].store(operator_name, std::memory_order_relaxed);
  }
};
extern InFlight g_in_flight;

/// Functions of the driver's per-thread stack of contexts; each returns 0 on success. Tests replace them.
struct ContextStack {
  int (*current)(CUctx_st** context);
  int (*push)(CUctx_st* context);
  int (*pop)(CUctx_st** context);
  std::atomic<CUctx_st*> contexts[kMaxDevices];  ///< the devices' contexts; null until a device is used
};
extern ContextStack g_stack;

enum class Pushed { no, yes, failed };
/// Pushes the device's context on the thread's stack, unless it is already the current one.
Pushed push_device(int device, cudaError_t* error) noexcept;
void pop_device() noexcept;
}  // namespace detail

/// Throws unless the call succeeded: OutOfMemory, or CudaError that names the call and, if the context has had a fault,
/// the fault.
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    detail::failed(error, call);
}

/// Makes a device current on this thread for a scope, then restores the previous one, so that kernels of other code run
/// on the device their author expects. Uses the driver's stack of contexts instead of cudaSetDevice: a thread that had
/// no current device has none afterwards, whereas setting device 0 would create a context there. On a machine with one
/// device a guard costs the test of a flag.
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
  /// For callers that must not throw: holds() says whether the device is current.
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

/// Device for calls tied to none (such as host memory): the first this process used, else the current one. Such calls
/// need a context, and this choice avoids creating one.
int device_in_use() noexcept;

inline cudaStream_t handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace lorry::cuda
