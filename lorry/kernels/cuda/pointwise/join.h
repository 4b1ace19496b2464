#pragma once

#include <span>

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels::cuda {

/// CopyKernels::join.
void join(const Array& to, std::span<const Array> from, Stream stream);

}  // namespace lorry::kernels::cuda
