#pragma once

// The devices of this machine, and moving bytes between them. A type that this build has no code for has no devices.

#include <cstdint>
#include <string>
#include <utility>

#include "lorry/device/stream.h"

namespace lorry::device {

/// How many devices of the type this machine has: 1 for the CPU, 0 without a driver.
int count(DeviceType type);
/// Whether there is one.
inline bool available(DeviceType type) { return count(type) > 0; }
/// Why there is no device of the type, or fewer than the machine has: one clause, such as "this build has no CUDA";
/// else empty.
std::string why_absent(DeviceType type);
/// Throws DeviceError naming `where` unless the device exists.
void require_device(Device device, const char* where);

/// What a device is called, and what it has.
struct Facts {
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
};
/// Throws DeviceError for a device that does not exist.
Facts facts(Device device);
/// What the whole machine uses and has of the device's memory, this process's context and libraries included.
struct MemoryUse {
  int64_t free_bytes = 0, total_bytes = 0;
};
/// What is in use now. Throws DeviceError for a device that does not exist.
MemoryUse memory_use(Device device);

/// Waits for all work on the device. Throws what that work met with.
void synchronize(Device device);

/// Throws what kernels have reported so far, such as an index outside its tensor, without waiting for those that still
/// run.
void throw_reported(Device device);

/// For work in several launches that must not stop half way: while it lives, what kernels report waits, and is thrown
/// by the first of this thread's calls after it.
class ReportsWait {
 public:
  ReportsWait() : before_(std::exchange(t_reports_wait, true)) {}
  ~ReportsWait() { t_reports_wait = before_; }
  ReportsWait(const ReportsWait&) = delete;
  ReportsWait& operator=(const ReportsWait&) = delete;
  static bool now() { return t_reports_wait; }

 private:
  static inline constinit thread_local bool t_reports_wait = false;
  const bool before_;
};

/// Copies bytes within or between devices, in the order of `stream`, which belongs to the one that is not the CPU (to
/// the target's between two). Both ends stay as they are until the stream is done: a driver may still read pageable
/// host memory when the call returns. memory::upload takes a source that does not stay.
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream);

}  // namespace lorry::device
