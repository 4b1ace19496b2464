#include "lorry/device/cuda/fault.h"

#include <bit>
#include <mutex>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/device.h"

namespace lorry::cuda {

std::atomic<Fault*> detail::g_faults[kMaxDevices] = {};

Fault* fault_slot(int device) {
  static std::once_flag once[kMaxDevices];
  std::call_once(once[device], [device] {
    const DeviceGuard guard(device);
    const Unrestricted scope(guard);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(Fault), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    auto* const fault = new (memory) Fault{};
    void* claim = nullptr;
    check(cudaMalloc(&claim, sizeof(uint32_t)), "cudaMalloc");
    fault->claim = static_cast<uint32_t*>(claim);
    // Zeroed on a stream of its own: the default one may be closed by a capture.
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMemsetAsync(claim, 0, sizeof(uint32_t), stream), "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    detail::g_faults[device].store(fault, std::memory_order_release);
  });
  return detail::g_faults[device].load(std::memory_order_relaxed);
}

void detail::throw_report(Fault* fault, uint32_t generation) {
  if (device::ReportsWait::now()) return;
  const Fault report = *fault;
  if (!__atomic_compare_exchange_n(&fault->generation, &generation, generation + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  const char* const now = t_operator == nullptr ? "a wait for the device" : t_operator;
  switch (report.complaint) {
    case Complaint::index:
      raise<IndexError>("{}: index out of range; got {}; expected {} to {}; the device found it while it ran, and {} is the first call to hear of it; set CUDA_LAUNCH_BLOCKING=1 to hear of it at once",
                        report.where, report.value, report.low, report.high - 1, now);
    case Complaint::target:
      raise<IndexError>("{}: a target is not a class; got {}; expected {} to {}; the device found it while it ran, and {} is the first call to hear of it; set CUDA_LAUNCH_BLOCKING=1 to hear of it at once",
                        report.where, report.value, report.low, report.high - 1, now);
    case Complaint::probability:
      raise<ValueError>("{}: a probability is outside 0 to 1; got {}; the device found it while it ran, and {} is the first call to hear of it; set CUDA_LAUNCH_BLOCKING=1 to hear of it at once",
                        report.where, std::bit_cast<double>(report.value), now);
  }
  raise<CudaError>("{}: the device reported an unknown error", report.where);
}

}  // namespace lorry::cuda
