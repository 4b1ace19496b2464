#pragma once

// The devices of this machine, and moving bytes between them. Each device type is a row of a table; a type that this build
// has no row for has no devices.

#include <cstdint>
#include <string>
#include <utility>

#include "lorry/device/stream.h"

namespace lorry::device {

/// How many devices of the type this machine has: 1 for the CPU, 0 without a driver.
int count(DeviceType type);
inline bool available(DeviceType type) { return count(type) > 0; }
/// Why there is no device of the type, or fewer than the machine has: one clause, such as "this build has no CUDA"; else empty.
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
MemoryUse memory_use(Device device);

/// Waits for all work on the device. Throws what that work met with.
void synchronize(Device device);

/// Throws what kernels have reported so far, such as an index outside its tensor, without waiting for those that still run.
void throw_reported(Device device);

/// For work in several launches that must not stop half way: while it lives, what kernels report waits, and is thrown by the first of
/// this thread's calls after it.
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

/// A row of the table of devices. All but `count` and `why_absent` are called only with devices that exist.
struct Runtime {
  int (*count)();
  std::string (*why_absent)();
  Facts (*facts)(int index);
  MemoryUse (*memory_use)(int index);
  void (*synchronize)(int index);
  void (*throw_reported)(int index);
  void (*copy)(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream);
  void* (*make_stream)(int index, int priority);
  void (*destroy_stream)(int index, void* stream) noexcept;
  void (*synchronize_stream)(Stream stream);
  bool (*capturing)(Stream stream) noexcept;
  void* (*make_event)(int index, bool timed);
  void (*destroy_event)(int index, void* event) noexcept;
  void (*record_event)(void* event, Stream stream);
  void (*block_stream)(void* event, Stream stream);
  bool (*event_done)(int index, void* event);
  void (*synchronize_event)(int index, void* event);
  double (*milliseconds)(int index, void* start, void* end);
};

/// The row of a device type. Throws DeviceError naming `where` when this build has none.
const Runtime& runtime(DeviceType type, const char* where);

}  // namespace lorry::device

namespace lorry::cuda {
extern const device::Runtime kDeviceRuntime;
}
