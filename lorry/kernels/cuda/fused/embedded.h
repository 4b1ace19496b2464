#pragma once

// The headers that generated kernels include, carried by the library: those of formulas, of element types, of device
// code (fused.cmake lists them), and what stands in for the standard library (base/nvrtc).

#include <vector>

#include "lorry/kernels/cuda/fused/nvrtc.h"

namespace lorry::kernels::cuda {

const std::vector<Header>& embedded_headers();
/// Of all names and texts.
const char* embedded_hash();

}  // namespace lorry::kernels::cuda
