#pragma once

#include <cstddef>

#include "lorry/device/device.h"

namespace lorry::cuda {

/// Memory of the device, filled with zeros and never released: for what a device needs once in a program. It is not
/// allocated from the caching allocator, whose statistics programs use to find leaks. During a capture too, of which it
/// is no part. The host waits for it (waits::Wait::setup). Null if the device has no memory left.
void* lasting_zeros(Device device, size_t bytes);

}  // namespace lorry::cuda
