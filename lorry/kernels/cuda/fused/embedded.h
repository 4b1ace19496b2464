#pragma once

// The headers that generated kernels include, embedded in the library: formulas, element types and device code (listed
// in fused.cmake), and replacements for the standard library (base/nvrtc).

#include <vector>

#include "lorry/kernels/cuda/fused/nvrtc.h"

namespace lorry::kernels::cuda {

const std::vector<Header>& embedded_headers();
/// A hash of all names and texts.
const char* embedded_hash();

}  // namespace lorry::kernels::cuda
