#pragma once

// What the driver says of a GPU: versions, clocks, and what a context costs. For `lorry info`, and for measurements
// that are valid only for the same driver and clocks. On the CPU and on meta all of it is empty.

#include <cstdint>
#include <optional>
#include <string>

#include "lorry/layout/device.h"

namespace lorry::device {

struct DriverFacts {
  std::string driver;        ///< "570.124.06"; empty if the system does not say
  std::string driver_cuda;   ///< the newest version of CUDA that the driver supports: "12.8"
  std::string runtime_cuda;  ///< the version of the CUDA runtime in this build
  int clock_mhz = 0;         ///< the multiprocessors' highest clock; 0 if unknown
  int memory_clock_mhz = 0;  ///< the memory's highest clock; 0 if unknown
};
/// Creates no context. Throws DeviceError for a device that does not exist.
DriverFacts driver_facts(Device device);

/// What this process's context on a GPU cost when it was created.
struct ContextCost {
  /// Bytes of the device's memory. None without NVML (the driver's library of facts), which sees the memory in use
  /// before there is a context.
  std::optional<int64_t> bytes;
  double seconds = 0;
  int64_t others_bytes = 0;  ///< in use then by other processes and by the driver; 0 if `bytes` is none
};
/// Creates the context and measures that. None if the process had a context before the first call, and for devices
/// without contexts. Throws DeviceError for a device that does not exist.
std::optional<ContextCost> context_cost(Device device);

}  // namespace lorry::device
