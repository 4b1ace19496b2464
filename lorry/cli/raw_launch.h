#pragma once

#include "lorry/device/stream.h"

namespace lorry::cli {

/// Launches a kernel that does nothing, as CUDA's own <<<>>> does: the least that any call on a GPU can cost. Throws
/// DeviceError in a build without CUDA.
void raw_launch(Stream stream);

}  // namespace lorry::cli
