#pragma once

#include "lorry/device/stream.h"

namespace lorry::profile {

/// Launches a kernel that does nothing, with CUDA's own <<<>>>: the lower bound for the host's cost of any call on a
/// GPU. Only in builds with CUDA.
void raw_launch(Stream stream);

/// Copies four bytes to the host and waits for them: the lower bound for the cost of reading a value.
void raw_read(Stream stream);

}  // namespace lorry::profile
