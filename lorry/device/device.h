#pragma once

// The devices of this machine: how many there are, their properties, waiting for them, and copying bytes between them.
// A device type that this build does not support has no devices.

#include <cstdint>
#include <string>
#include <utility>

#include "lorry/device/stream.h"

namespace lorry::device {

/// The number of devices of the type in this machine: 1 for the CPU; 0 for GPUs without a driver.
int count(DeviceType type);
/// Whether there is at least one device of the type.
inline bool available(DeviceType type) { return count(type) > 0; }
/// Why there is no device of the type, or why fewer can be used than the machine has: one clause, such as "this build
/// has no CUDA". Empty if all can be used.
std::string why_absent(DeviceType type);
/// Throws DeviceError naming `where` unless the device exists.
void require_device(Device device, const char* where);

/// A device's name and properties. Compute capability and multiprocessors are 0 for other devices than GPUs.
struct DeviceInfo {
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
};
/// Throws DeviceError for a device that does not exist.
DeviceInfo info(Device device);
/// A device's memory. Memory used by other processes, and by this process's context and libraries, is not free.
struct MemoryUse {
  int64_t free_bytes = 0, total_bytes = 0;
};
/// Throws DeviceError for a device that does not exist.
MemoryUse memory_use(Device device);

/// Waits for all work on the device. Throws the errors of that work.
void synchronize(Device device);

/// Throws the first error that kernels have reported so far, such as an index outside its tensor. Does not wait for
/// kernels that are still running.
void throw_reported(Device device);

/// Defers errors that kernels report, for a scope. For work in several launches that must not stop half way. The first
/// call of this thread after the scope throws the error.
class DeferReports {
 public:
  DeferReports() : before_(std::exchange(t_deferred, true)) {}
  ~DeferReports() { t_deferred = before_; }
  DeferReports(const DeferReports&) = delete;
  DeferReports& operator=(const DeferReports&) = delete;
  /// Whether this thread is inside such a scope.
  static bool active() { return t_deferred; }

 private:
  static inline constinit thread_local bool t_deferred = false;
  const bool before_;
};

/// Copies bytes within a device or between two, in the order of `stream`. The stream belongs to the device that is not
/// the CPU; between two GPUs, to the destination's. The caller must keep both memories, and not change the source,
/// until the stream is done: a driver may still read pageable host memory after the call has returned. memory::upload
/// accepts a source that may change at once.
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream);

}  // namespace lorry::device
