#pragma once

// What GPUs did during a session, from CUPTI (CUDA's profiling interface). CUPTI is opened when a session begins, so a
// program needs it only then.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lorry/profile/recording.h"

namespace lorry::profile {

/// Work of a GPU. Its times are in the trace's own nanoseconds, and names are indexes into Traced::names.
struct TracedWork {
  DeviceRecord record;
  uint32_t graph = 0;  ///< of a replayed graph: the driver's number of the graph
  uint64_t node = 0;   ///< and of its node
};
struct TracedCall {
  RuntimeCall call;
  uint64_t system_thread = 0;
};
struct Traced {
  std::vector<std::string> names;
  std::vector<TracedWork> work;
  std::vector<TracedCall> calls;
  /// Of launches: the driver's number, and the one that was pushed on their thread.
  std::vector<std::pair<uint32_t, uint64_t>> external;
  int64_t dropped = 0;                ///< records that CUPTI had no buffer for
  std::vector<std::string> failures;  ///< what CUPTI refused
};

class DeviceTrace {
 public:
  virtual ~DeviceTrace() = default;
  /// Nanoseconds of the trace's own clock.
  virtual int64_t now() = 0;
  /// Launches of this thread belong to this number until pop().
  virtual void push(uint64_t number) noexcept = 0;
  virtual void pop() noexcept = 0;
  /// Ends the trace. The GPUs must be done.
  virtual Traced stop() = 0;
};

/// Begins to trace all GPUs of this process. Null, with the reason, where that is not possible.
std::unique_ptr<DeviceTrace> trace_devices(std::string& why_not);

}  // namespace lorry::profile
