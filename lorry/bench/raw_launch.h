#pragma once

#include "lorry/device/stream.h"

namespace lorry::bench {

/// Launches a kernel that does nothing, as CUDA's own <<<>>> does: the least that any call on a GPU can cost. In a
/// build with CUDA only.
void raw_launch(Stream stream);

}  // namespace lorry::bench
