#include "lorry/device/cuda/fault.h"

#include <bit>
#include <mutex>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/runtime.h"

namespace lorry::cuda {

Fault* detail::g_faults[kMaxDevices] = {};

Fault* fault_slot(int device) {
  static std::once_flag once[kMaxDevices];
  std::call_once(once[device], [device] {
    make_current(device);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(Fault), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    detail::g_faults[device] = new (memory) Fault{};
  });
  return detail::g_faults[device];
}

void detail::throw_report(Fault* fault) {
  const Fault report = *fault;
  __atomic_store_n(&fault->state, 0u, __ATOMIC_RELEASE);
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
