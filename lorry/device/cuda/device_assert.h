#pragma once

// Errors that only the device can see, such as an index outside its tensor, without waiting for it: the kernel leaves
// the offending value in a slot of host memory, does no harm (reads give 0, writes are left out), and the next call
// that launches or waits throws. The tensor's contents are then unspecified, the context is sound, and the next call
// works. One slot a device; the first report stays until it is thrown.

#include <atomic>
#include <cstdint>

#include "lorry/base/macros.h"
#include "lorry/device/stream.h"

namespace lorry::cuda {

/// What went wrong; device_assert.cpp holds the messages.
enum class DeviceAssert : uint32_t { index, target, probability };

/// In host memory, where the GPU can write but not compare and exchange: what threads of the device contend for lies
/// beside it in device memory. Reports are numbered. Number g may be claimed once `generation` is g and is there once
/// `filled` is g; the host then copies it and sets `generation` to g + 1, and only from that moment on may the device
/// write here again.
struct AssertSlot {
  uint32_t generation = 1;    ///< written by the host
  uint32_t filled = 0;        ///< written by the device
  uint32_t* claim = nullptr;  ///< in device memory: the number last claimed
  DeviceAssert assertion;
  const char* where;  ///< the operator's name, at its address in the host's memory
  int64_t value;      ///< the offending value; its bits for a probability (f64)
  int64_t low, high;  ///< what was expected: [low, high)
};

/// The slot of a device, at an address that kernels can use. Pass it by value.
AssertSlot* assert_slot(int device);

/// What a kernel needs to report: the slot of its device, and the operator's name. Neither ever moves.
struct AssertSite {
  AssertSlot* slot;
  const char* where;

  AssertSite(int device, const char* where) : slot(assert_slot(device)), where(where) {}
  void addresses(auto& visit) const { visit(); }

#ifdef __CUDACC__
  /// Leaves a report unless there is one.
  __device__ void report(DeviceAssert assertion, int64_t value, int64_t low, int64_t high) const {
    const uint32_t generation = *const_cast<const volatile uint32_t*>(&slot->generation);
    if (atomicMax(slot->claim, generation) >= generation) return;
    slot->assertion = assertion;
    slot->where = where;
    slot->value = value;
    slot->low = low;
    slot->high = high;
    __threadfence_system();
    *const_cast<volatile uint32_t*>(&slot->filled) = generation;
  }
#endif
};

namespace detail {
extern std::atomic<AssertSlot*> g_assert_slots[kMaxDevices];
/// Throws report number `generation`, unless another thread does or a device::ReportsWait holds it back.
[[gnu::cold, gnu::noinline]] void throw_report(AssertSlot* slot, uint32_t generation);
}  // namespace detail

/// Throws the report that is there, if any, and empties the slot. Costs one read of host memory.
inline void throw_assert(int device) {
  AssertSlot* const slot = detail::g_assert_slots[device].load(std::memory_order_acquire);
  if (slot == nullptr) return;
  const uint32_t generation = __atomic_load_n(&slot->generation, __ATOMIC_RELAXED);
  if (__atomic_load_n(&slot->filled, __ATOMIC_ACQUIRE) == generation) [[unlikely]]
    detail::throw_report(slot, generation);
}

}  // namespace lorry::cuda
