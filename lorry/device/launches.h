#pragma once

// How many kernels a thread has launched on GPUs: what a benchmark says of a call beside its time. Launches of
// libraries (cuBLASLt, cuDNN), copies and fills are not counted.

#include <cstdint>

namespace lorry::device {

inline constinit thread_local int64_t t_launches = 0;

}  // namespace lorry::device
