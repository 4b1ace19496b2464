#pragma once

#include "lorry/layout/device.h"

namespace lorry {

/// A queue of work on a device. On the CPU work is done when a call returns, and the handle is null.
struct Stream {
  Device device;
  void* handle = nullptr;
};

/// The stream on which this thread's calls on `device` run.
inline Stream current_stream(Device device) { return {device, nullptr}; }

}  // namespace lorry
