#pragma once

// What the kernels of a file may use: what the device can do, and what they are compiled for.

#include <algorithm>
#include <climits>

#include "lorry/device/cuda/runtime.h"

namespace lorry::cuda {

/// The least compute capability for which the kernels of this file are compiled, 90 for 9.0. A file that nvcc does not
/// compile has only kernels that are compiled at run time, for their device.
#ifdef __CUDA_ARCH_LIST__
static constexpr int kCompiledFor = std::min({INT_MAX, __CUDA_ARCH_LIST__}) / 10;
#else
static constexpr int kCompiledFor = INT_MAX;
#endif

/// Of a device, for the kernels of the file that calls this. A driver compiles code of an earlier capability for the
/// device, but not what was left out of it.
template <int kCompiled = kCompiledFor>
int capability(int device) {
  return std::min(properties(device).compute_capability, kCompiled);
}

}  // namespace lorry::cuda
