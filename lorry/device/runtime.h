#pragma once

// The table of device types. device.h and stream.h call its rows.

#include <memory>
#include <optional>
#include <string>

#include "lorry/device/device.h"
#include "lorry/device/driver_facts.h"
#include "lorry/device/work_graph.h"

namespace lorry::device {

/// A row of the table: the functions of one device type. All but `count` and `why_absent` are called only with devices
/// that exist.
struct Runtime {
  int (*count)();
  std::string (*why_absent)();
  DeviceInfo (*info)(int index);
  MemoryUse (*memory_use)(int index);
  DriverFacts (*driver_facts)(int index);
  std::optional<ContextCost> (*context_cost)(int index);
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
  std::unique_ptr<WorkGraph> (*capture_work)(Stream stream);
};

/// The row of a device type. Throws DeviceError that names `where` if this build has none.
const Runtime& runtime(DeviceType type, const char* where);

}  // namespace lorry::device

namespace lorry::cuda {
extern const device::Runtime kDeviceRuntime;
}
