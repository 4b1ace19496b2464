#pragma once

// Errors that only a kernel can detect, such as an index outside its tensor, reported without waiting for the device.
// The kernel stores the offending value in a slot of host memory and continues safely: invalid reads give 0, invalid
// writes are skipped. The next call that launches or waits throws. The contents of the output are then unspecified, but
// the context still works. There is one slot per device; the first report stays until it is thrown.

#include <atomic>
#include <cstdint>

#include "lorry/base/macros.h"
#include "lorry/device/stream.h"

namespace lorry::cuda {

/// The check that failed. The messages are in device_assert.cpp.
enum class DeviceAssert : uint32_t { index, target, probability };

/// The slot is in host memory, on which a GPU cannot do atomic operations. So the word that device threads compete for,
/// `claim`, is in device memory. Reports are numbered. A thread may claim number g while `generation` is g; the report
/// is complete when `filled` is g. The host then copies it and sets `generation` to g + 1; only then may the device
/// write the slot again.
struct AssertSlot {
  uint32_t generation = 1;    ///< written by the host
  uint32_t filled = 0;        ///< written by the device
  uint32_t* claim = nullptr;  ///< in device memory: the last claimed number
  DeviceAssert assertion;
  const char* where;  ///< the operator's name: an address in host memory
  int64_t value;      ///< the offending value; for a probability, the bits of its f64
  int64_t low, high;  ///< the expected range [low, high)
};

/// The slot of a device, at an address that kernels can use. Pass it by value.
AssertSlot* assert_slot(int device);

/// What a kernel needs to report an error: its device's slot and the operator's name. Both addresses are constant.
struct AssertSite {
  AssertSlot* slot = nullptr;
  const char* where = nullptr;

  AssertSite() = default;  ///< of a kernel that reports nothing
  AssertSite(int device, const char* where) : slot(assert_slot(device)), where(where) {}
  void addresses(auto& visit) const { visit(); }

#ifdef __CUDACC__
  /// Stores a report unless the slot already holds one.
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
/// Throws report number `generation`, unless another thread throws it or a device::DeferReports defers it.
[[gnu::cold, gnu::noinline]] void throw_report(AssertSlot* slot, uint32_t generation);
}  // namespace detail

/// If the slot holds a report, empties the slot and throws. Otherwise costs one read of host memory.
inline void throw_assert(int device) {
  AssertSlot* const slot = detail::g_assert_slots[device].load(std::memory_order_acquire);
  if (slot == nullptr) return;
  const uint32_t generation = __atomic_load_n(&slot->generation, __ATOMIC_RELAXED);
  if (__atomic_load_n(&slot->filled, __ATOMIC_ACQUIRE) == generation) [[unlikely]]
    detail::throw_report(slot, generation);
}

}  // namespace lorry::cuda
