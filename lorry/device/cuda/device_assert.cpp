#include "lorry/device/cuda/device_assert.h"

#include <bit>
#include <mutex>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/lasting_zeros.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/device.h"
#include "lorry/layout/layout.h"

namespace lorry::cuda {

std::atomic<AssertSlot*> detail::g_assert_slots[kMaxDevices] = {};

AssertSlot* assert_slot(int device) {
  static std::once_flag once[kMaxDevices];
  std::call_once(once[device], [device] {
    void* const claim = lasting_zeros({DeviceType::cuda, static_cast<int8_t>(device)}, sizeof(uint32_t));
    if (claim == nullptr) check(cudaErrorMemoryAllocation, "cudaMalloc");
    const DeviceGuard guard(device);
    const Unrestricted scope(guard);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(AssertSlot), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    auto* const slot = new (memory) AssertSlot{};
    slot->claim = static_cast<uint32_t*>(claim);
    detail::g_assert_slots[device].store(slot, std::memory_order_release);
  });
  return detail::g_assert_slots[device].load(std::memory_order_relaxed);
}

void detail::throw_report(AssertSlot* slot, uint32_t generation) {
  if (device::DeferReports::active()) return;
  const AssertSlot report = *slot;
  if (!__atomic_compare_exchange_n(&slot->generation, &generation, generation + 1, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_RELAXED))
    return;
  const char* const now = running_or("a wait for the device");
  switch (report.assertion) {
    case DeviceAssert::index:
      raise_as<IndexError>(report.where,
                           "index out of range; got {}; expected {}; detected by the kernel while it ran and reported "
                           "in {}; set CUDA_LAUNCH_BLOCKING=1 to get the error in the call that made it",
                           report.value, IndexRange{report.low, report.high}, now);
    case DeviceAssert::target:
      raise_as<IndexError>(report.where,
                           "a target is not a class; got {}; expected {}; detected by the kernel while it ran and "
                           "reported in {}; set CUDA_LAUNCH_BLOCKING=1 to get the error in the call that made it",
                           report.value, IndexRange{report.low, report.high}, now);
    case DeviceAssert::probability:
      raise_as<ValueError>(report.where,
                           "a probability is outside 0 to 1; got {}; detected by the kernel while it ran and reported "
                           "in {}; set CUDA_LAUNCH_BLOCKING=1 to get the error in the call that made it",
                           std::bit_cast<double>(report.value), now);
  }
  raise_as<CudaError>(report.where, "the device reported an unknown error");
}

}  // namespace lorry::cuda
