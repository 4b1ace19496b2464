#pragma once

// Errors that only the device can see, such as an index outside its tensor, without waiting for it: the kernel leaves the
// offending value in a slot of host memory, does no harm (reads give 0, writes are left out), and the next call that launches or
// waits throws. The tensor's contents are then unspecified, the context is sound, and the next call works. One slot a device; the
// first report stays until it is thrown.

#include <cstdint>

#include "lorry/base/macros.h"
#include "lorry/device/stream.h"

namespace lorry::cuda {

/// What went wrong; fault.cpp holds the sentences.
enum class Complaint : uint32_t { index, target, probability };

struct Fault {
  uint32_t state;  ///< 0 empty, 1 being written, 2 filled
  Complaint complaint;
  const char* where;  ///< the operator's name, at its address in the host's memory
  int64_t value;      ///< the offending value; its bits for a probability (f64)
  int64_t low, high;  ///< what was expected: [low, high)
};

/// The slot of a device, at an address that kernels can use. Pass it by value.
Fault* fault_slot(int device);


#ifdef __CUDACC__
/// Leaves a report unless there is one.
__device__ inline void report(Fault* fault, Complaint complaint, const char* where, int64_t value, int64_t low, int64_t high) {
  if (atomicCAS_system(&fault->state, 0u, 1u) != 0u) return;
  fault->complaint = complaint;
  fault->where = where;
  fault->value = value;
  fault->low = low;
  fault->high = high;
  __threadfence_system();
  atomicExch_system(&fault->state, 2u);
}
#endif

namespace detail {
extern Fault* g_faults[kMaxDevices];
[[noreturn, gnu::cold, gnu::noinline]] void throw_report(Fault* fault);
}  // namespace detail

/// Throws the report that is there, if any, and empties the slot. Costs one read of host memory.
inline void throw_fault(int device) {
  Fault* const fault = detail::g_faults[device];
  if (fault != nullptr && __atomic_load_n(&fault->state, __ATOMIC_ACQUIRE) == 2u) [[unlikely]] detail::throw_report(fault);
}

}  // namespace lorry::cuda
